// The router's JSON API.

/** Below /workers/NUMBER the page shows that worker, not the one that has the port. */
const WORKER = /^\/workers\/[0-9]+(?=\/|$)/.exec(location.pathname)?.[0] ?? "";
export const BASE = `${WORKER}/api/v1`;
export const PAGE_SIZE = 200;
const TIMEOUT_MS = 15_000;

/** What the router refused or could not do: `message` is what, `fix` what to do about it. */
export class ApiError extends Error {
  constructor(status, what, fix) {
    super(what);
    this.status = status;
    this.fix = fix;
  }
}

/** A path with its query; empty values are left out. */
export function pathTo(parts, query = {}) {
  const path = parts.map((part) => encodeURIComponent(part)).join("/");
  const used = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return `${BASE}/${path}${used.length ? `?${new URLSearchParams(used)}` : ""}`;
}

export function get(parts, query) {
  return ask("GET", pathTo(parts, query));
}

/** Changes something; `body` goes as JSON. */
export function change(method, parts, body = {}) {
  return ask(method, pathTo(parts), body);
}

async function ask(method, path, body) {
  const options = { method, signal: AbortSignal.timeout(TIMEOUT_MS), headers: { Accept: "application/json" } };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    const what = error.name === "TimeoutError" ? "The router did not answer in time." : "The router cannot be reached.";
    throw new ApiError(0, what, "See whether its process runs and this machine reaches its HTTP port, then try again.");
  }
  const content = await answer.json().catch(() => null);
  if (!answer.ok) {
    const what = content?.error ?? `The router answered HTTP ${answer.status}.`;
    throw new ApiError(answer.status, what, content?.fix ?? "See the router's log.");
  }
  if (content === null && answer.status !== 204) {
    throw new ApiError(answer.status, "The response is not JSON.", "Check whether a proxy is in front of the router.");
  }
  return content;
}
