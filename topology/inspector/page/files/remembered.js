// What this browser keeps: theme, keys, the switch for the whole network.

export function remembered(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // Storage may be switched off; the choice then holds until the page is left.
  }
}
