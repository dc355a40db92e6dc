// Runs before the first paint, so that a chosen theme does not flash. A classic script: modules run later.
"use strict";

try {
  const chosen = localStorage.getItem("oncewire-theme");
  if (chosen === "light" || chosen === "dark") {
    document.documentElement.dataset.theme = chosen;
  }
} catch {
  // Storage may be switched off; then the system's theme is used.
}
