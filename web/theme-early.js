// Read before the page is drawn, so that it is never drawn in the other colours first. Not a module: modules come later.
try {
  const theme = window.localStorage.getItem("outlast.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // The system's colours, then.
}
