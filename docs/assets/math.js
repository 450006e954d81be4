// Formulas are set in the page itself, by KaTeX from this folder: nothing is asked from outside.
for (const formula of document.querySelectorAll(".arithmatex")) {
  const text = formula.textContent.trim();
  katex.render(text.slice(2, -2), formula, { displayMode: text.startsWith("\\["), throwOnError: true });
}
