// Exercises with an answer: a field for a number, judged as companion.exercise judges it.
(() => {
  const NEAR_MISSES = [
    [-1, "The size is right, the sign is not."],
    [2, "Twice the answer: a factor of 2 too much."],
    [0.5, "Half the answer: a factor of 2 is missing."],
    [100, "100 times the answer: is it asked in per cent?"],
    [0.01, "A hundredth of the answer: is it asked in per cent?"],
  ];
  const CLOSE = "Close, but not close enough: carry more digits, or look for a small term left out.";
  const HOW = "This is no number. Write it like 0.25, 1/4, 25%, 2.5e-1, 10^-3 or 1,000.";

  const decimal = (text) => {
    const power = text.match(/^(-?)(?:(.+)[*x×])?10\^(-?\d+)$/);
    if (power) return decimal(power[1] + (power[2] ?? "1")) * 10 ** Number(power[3]);
    return /^-?(\d+(,\d{3})*(\.\d*)?|\.\d+)(e[+-]?\d+)?$/.test(text)
      ? Number(text.replaceAll(",", ""))
      : NaN;
  };

  // The number that a text means, NaN if none: spaces do not count, a minus may be typeset.
  const parse = (typed) => {
    const text = typed.toLowerCase().replace(/\s/g, "").replace(/[−–]/g, "-").replace(/^\+/, "");
    const [, body, percent] = text.match(/^(.*?)(%?)$/);
    const parts = body.split("/").map(decimal);
    const value = parts.length === 2 ? parts[0] / parts[1] : parts.length === 1 ? parts[0] : NaN;
    return Number.isFinite(value) ? value / (percent ? 100 : 1) : NaN;
  };

  const judge = (value, { dataset }) => {
    const [answer, rtol, atol] = [dataset.value, dataset.rtol, dataset.atol].map(Number);
    const within = (x, times) => Math.abs(x - answer) <= times * (atol + rtol * Math.abs(answer));
    if (within(value, 1)) return "Right.";
    const near = NEAR_MISSES.find(([factor]) => within(value / factor, 1));
    if (near) return near[1];
    return within(value, 5) ? CLOSE : "Not yet.";
  };

  const add = (place) => {
    const { what } = place.dataset;
    const form = document.createElement("form");
    const name = document.createElement("label");
    const field = document.createElement("input");
    field.type = "text";
    field.autocomplete = "off";
    field.spellcheck = false;
    name.append(what ? `Your answer, ${what}: ` : "Your answer: ", field);
    const button = document.createElement("button");
    button.textContent = "Check";
    const verdict = document.createElement("p");
    verdict.setAttribute("role", "status");
    form.append(name, button, verdict);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const value = parse(field.value);
      verdict.textContent = Number.isNaN(value) ? HOW : judge(value, place);
      form.dataset.right = verdict.textContent === "Right.";
    });
    field.addEventListener("input", () => {
      verdict.textContent = "";
      delete form.dataset.right;
    });
    place.append(form);
    place.hidden = false;
  };

  document.addEventListener("DOMContentLoaded", () =>
    document.querySelectorAll(".exercise-answer").forEach(add),
  );
})();
