// Sets the chosen theme before the first drawing, so that a dark page does not flash white.
// This is no module, since modules run after the page is parsed.
(() => {
  try {
    const theme = localStorage.getItem("archon-theme");
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  } catch {
    // Without storage, the theme of the system applies.
  }
})();
