"use strict";
(() => {
  const box = document.getElementById("words");
  if (box) {
    const cards = Array.from(document.querySelectorAll("[data-words]"));
    const said = document.getElementById("count");
    const show = () => {
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      for (const card of cards) {
        const fits = words.every((word) => card.dataset.words.includes(word));
        card.hidden = !fits;
        if (fits) count += 1;
      }
      said.textContent = count + " of " + cards.length;
      history.replaceState(null, "", box.value ? "#" + encodeURIComponent(box.value) : location.pathname);
    };
    let waiting = 0;
    box.addEventListener("input", () => {
      cancelAnimationFrame(waiting);
      waiting = requestAnimationFrame(show);
    });
    box.form.addEventListener("submit", (event) => event.preventDefault());
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && document.activeElement !== box) {
        event.preventDefault();
        box.focus();
      } else if (event.key === "Escape" && document.activeElement === box) {
        box.value = "";
        show();
      }
    });
    box.form.hidden = false;
    try {
      box.value = decodeURIComponent(location.hash.slice(1));
    } catch {
      box.value = "";
    }
    show();
  }
  for (const block of document.querySelectorAll("pre[data-copy]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy: " + block.dataset.copy);
    button.addEventListener("click", async () => {
      const text = block.textContent;
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(block);
        button.textContent = document.execCommand("copy") ? "Copied" : "Selected: press Ctrl-C";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 4000);
    });
    const heading = block.previousElementSibling;
    if (heading && heading.tagName === "H3") heading.append(button);
    else block.before(button);
  }
})();
