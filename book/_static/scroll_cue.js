// A formula or table wider than its column scrolls in a box of its own. Phones hide the bar, so
// the box says that there is more (a shadow at its edge, see custom.css), and the keyboard can
// reach it.
(() => {
  const boxes = 'mjx-container[display="true"], div.output.text_html, .pst-scrollable-table-container';

  // A pixel or two is rounding, which the keyboard may reach all the same.
  const mark = (box) => {
    const hidden = box.scrollWidth - box.clientWidth;
    box.classList.toggle("more-right", hidden - box.scrollLeft > 2);
    box.classList.toggle("more-left", hidden > 2 && box.scrollLeft > 2);
    if (hidden > 0) box.setAttribute("tabindex", "0");
    else box.removeAttribute("tabindex");
  };

  // What a box holds may grow when the box does not: so its contents are watched as well.
  const watch = () => {
    const sizes = new ResizeObserver((entries) =>
      entries.forEach(({ target }) => mark(target.closest(boxes))),
    );
    document.querySelectorAll(boxes).forEach((box) => {
      [box, ...box.children].forEach((element) => sizes.observe(element));
      box.addEventListener("scroll", () => mark(box), { passive: true });
    });
  };

  window.addEventListener("load", async () => {
    await window.MathJax?.startup?.promise;
    await document.fonts.ready;
    watch();
  });
})();
