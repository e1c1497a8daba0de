// Starts a deck when its formulas are set: what is hidden later cannot be measured.
window.addEventListener("load", async () => {
  await window.MathJax?.startup?.promise;
  const deck = new Reveal({
    width: 1280,
    height: 720,
    margin: 0.02,
    center: false,
    display: "flex",
    hash: true,
    slideNumber: "c/t",
    transition: "none",
    pdfMaxPagesPerSlide: 1,
    plugins: [RevealNotes],
  });
  await deck.initialize();
  window.deck = deck;
});
