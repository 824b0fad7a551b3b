// Before anything is painted: the colours that were chosen, so that the page does not flash in others.
(() => {
  try {
    const chosen = localStorage.getItem('setun-theme');
    if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
  } catch {
    // without storage the system's colours are used
  }
})();
