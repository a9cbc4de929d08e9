"use strict";
(() => {
  const tip = document.getElementById("tip");
  const hide = () => { tip.style.visibility = "hidden"; };
  const show = (event) => {
    const on = event.target.closest && event.target.closest("[data-tip]");
    if (!on) return hide();
    tip.textContent = on.dataset.tip;
    const box = tip.getBoundingClientRect();
    const x = Math.min(Math.max(8, event.clientX + 14), window.innerWidth - box.width - 8);
    const y = event.clientY + box.height + 24 > window.innerHeight ? event.clientY - box.height - 12 : event.clientY + 16;
    tip.style.transform = `translate(${x}px, ${y}px)`;
    tip.style.visibility = "visible";
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("scroll", hide, { passive: true });
  const buttons = [...document.querySelectorAll(".choose button")];
  const choose = (who) => {
    buttons.forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.choose === who)));
    document.querySelectorAll("[data-who]").forEach((g) => g.classList.toggle("off", who !== "" && g.dataset.who !== who));
  };
  buttons.forEach((b) => b.addEventListener("click", () => choose(b.getAttribute("aria-pressed") === "true" ? "" : b.dataset.choose)));
})();
