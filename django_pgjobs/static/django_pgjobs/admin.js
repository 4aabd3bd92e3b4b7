"use strict";
// Copy buttons, and a question before a job is deleted. Without it the pages work all the same.
document.addEventListener("DOMContentLoaded", () => {
  if (navigator.clipboard) {
    for (const button of document.querySelectorAll(".pgjobs-copy")) {
      button.hidden = false;
      button.addEventListener("click", () =>
        navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent));
    }
  }
  for (const button of document.querySelectorAll("[data-confirm]")) {
    button.addEventListener("click", (event) => {
      if (!window.confirm(button.dataset.confirm)) event.preventDefault();
    });
  }
});
