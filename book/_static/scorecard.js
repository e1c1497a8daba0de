// The scorecard: choose claims by verdict, severity, source and words. What is chosen stands in the
// address, as in #false-as-printed or #thesis+breaks-the-conclusion, so that it can be shared.
(() => {
  const slug = (text) => text.trim().toLowerCase().replace(/[^a-z0-9]+/g, "-");

  const start = () => {
    const place = document.getElementById("scorecard-filter");
    if (!place) return;
    const chapters = [...document.querySelectorAll(".scorecard-chapter")];
    const rows = chapters.flatMap((chapter) => [...chapter.querySelectorAll("tbody > tr")]);
    const facts = new Map(
      rows.map((row) => {
        const [, verdict, severity] = row
          .querySelector(".verdict")
          .textContent.match(/^([^(]*?)(?: at this scale)?(?: \((.*)\))?$/);
        const source = row.querySelector("a.reference").textContent.split(":")[0];
        return [row, { verdict, severity, source, words: row.textContent.toLowerCase() }];
      }),
    );

    const fields = {};
    for (const name of ["verdict", "severity", "source"]) {
      const found = new Set([...facts.values()].map((fact) => fact[name]).filter(Boolean));
      const select = document.createElement("select");
      select.add(new Option("any", ""));
      [...found].sort().forEach((value) => select.add(new Option(value, slug(value))));
      fields[name] = select;
    }
    fields.words = document.createElement("input");
    fields.words.type = "search";
    for (const [name, field] of Object.entries(fields)) {
      const label = document.createElement("label");
      label.append(name, " ", field);
      place.append(label);
    }
    const count = document.createElement("p");
    count.setAttribute("role", "status");
    place.append(count);

    const show = () => {
      const { verdict, severity, source } = fields;
      const words = fields.words.value.trim().toLowerCase();
      const asked = verdict.value || severity.value || source.value || words;
      let shown = 0;
      rows.forEach((row) => {
        const fact = facts.get(row);
        row.hidden = !(
          ["verdict", "severity", "source"].every(
            (name) => !fields[name].value || slug(fact[name] || "") === fields[name].value,
          ) && fact.words.includes(words)
        );
        shown += !row.hidden;
      });
      chapters.forEach((chapter) => {
        const some = [...chapter.querySelectorAll("tbody > tr")].some((row) => !row.hidden);
        chapter.hidden = !some;
        if (asked) chapter.open = some;
      });
      count.textContent = asked ? `${shown} of ${rows.length} claims` : "";
    };

    const read = () => {
      const parts = decodeURIComponent(location.hash.slice(1)).split("+");
      for (const name of ["verdict", "severity", "source"]) {
        const known = [...fields[name].options].map((option) => option.value).filter(Boolean);
        fields[name].value = parts.find((part) => known.includes(part)) || "";
      }
      show();
    };

    place.addEventListener("input", () => {
      const parts = ["verdict", "severity", "source"].map((name) => fields[name].value);
      history.replaceState(null, "", `#${parts.filter(Boolean).join("+")}`);
      show();
    });
    window.addEventListener("hashchange", read);
    read();
  };

  document.addEventListener("DOMContentLoaded", start);
})();
