// Shows changes as they happen (server-sent events). Without this file the page shows what was when it was loaded.
"use strict";
(() => {
  const path = document.body.dataset.live;
  if (!path || !window.EventSource) return;
  const main = document.getElementById("main");
  const state = document.getElementById("live-state");
  const pause = document.getElementById("live-switch");
  let source = null;

  const place = (element) => element.id ? "#" + CSS.escape(element.id)
    : element.getAttribute("href") ? `a[href="${CSS.escape(element.getAttribute("href"))}"]`
    : element.getAttribute("aria-label") ? `[aria-label="${CSS.escape(element.getAttribute("aria-label"))}"]`
    : element.getAttribute("aria-labelledby") ? `div[aria-labelledby="${CSS.escape(element.getAttribute("aria-labelledby"))}"]`
    : null;

  const replace = (html) => {
    const focused = main.contains(document.activeElement) && document.activeElement !== main ? place(document.activeElement) : null;
    const moved = [...main.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    main.innerHTML = html; // every value in it was escaped by the server
    [...main.querySelectorAll(".scroll")].forEach((each, n) => { each.scrollLeft = moved[n] || 0; });
    if (focused) main.querySelector(focused)?.focus({ preventScroll: true });
  };

  const listen = () => {
    source = new EventSource(path);
    source.onopen = () => { state.textContent = "Live."; };
    source.onerror = () => { state.textContent = "Not connected."; };
    source.addEventListener("body", (event) => replace(JSON.parse(event.data)));
    source.addEventListener("read", (event) => {
      const told = JSON.parse(event.data);
      document.getElementById("read").textContent = told.read ?? "-";
      const failed = document.getElementById("failed");
      failed.hidden = !told.failed;
      if (failed.textContent !== (told.failed ?? "")) failed.textContent = told.failed ?? "";
    });
    pause.textContent = "Pause updates";
  };

  pause.hidden = false;
  pause.addEventListener("click", () => {
    if (source) {
      source.close();
      source = null;
      state.textContent = "Updates are paused.";
      pause.textContent = "Go on with updates";
    } else {
      listen();
    }
  });
  listen();
})();
