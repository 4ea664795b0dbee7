// Before anything is drawn, the theme that the reader chose: a page that flashes white at night is not looked at again.
// No module, since those wait until the page is there.
(() => {
  try {
    const theme = localStorage.getItem("archon-theme");
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  } catch {
    // A browser that keeps nothing gets what its system wants.
  }
})();
