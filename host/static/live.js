// Keeps a page up to date. Pages work without it: it fetches the page again when the server says that something happened, and
// swaps the parts that are marked `data-part` (each has an id), with focus and scroll kept where they were.
"use strict";
(() => {
  const body = document.body;
  const notice = document.getElementById("connection");
  const POLL_MS = 10_000; // Where no events can be had.
  const GATHER_MS = 700; // Many events at once are one.
  const say = (text, link) => {
    if (!notice || notice.dataset.said === (text || "")) return;
    notice.dataset.said = text || "";
    notice.textContent = text || "";
    notice.hidden = !text;
    if (link) {
      const anchor = document.createElement("a");
      anchor.href = link;
      anchor.textContent = "Log in again";
      notice.append(" ", anchor);
    }
  };
  if (body.dataset.address) history.replaceState(null, "", body.dataset.address);

  // The parts ------------------------------------------------------------------------------------------------------------
  let busy = false;
  let again = false;
  let ended = false;
  const shown = new Map();
  const swap = (fresh) => {
    for (const part of document.querySelectorAll("[data-part]")) {
      const next = fresh.getElementById(part.id);
      if (!next) continue;
      if (next.innerHTML === shown.get(part.id)) continue;
      const inside = part.contains(document.activeElement) ? document.activeElement : null;
      if (inside && inside.matches("input:not([type=hidden]), textarea, select")) continue; // Somebody types here.
      const open = [...part.querySelectorAll("details[open][id]")].map((it) => it.id);
      const places = [...part.querySelectorAll("[id]")].filter((it) => it.scrollTop || it.scrollLeft)
        .map((it) => [it.id, it.scrollTop, it.scrollLeft]);
      const focus = inside && (inside.id ? `#${CSS.escape(inside.id)}`
        : inside.getAttribute("href") ? `a[href="${CSS.escape(inside.getAttribute("href"))}"]` : null);
      const seen = next.innerHTML;
      part.replaceChildren(...next.childNodes);
      shown.set(part.id, seen);
      for (const id of open) document.getElementById(id)?.setAttribute("open", "");
      for (const [id, top, left] of places) document.getElementById(id)?.scrollTo(left, top);
      if (focus) part.querySelector(focus)?.focus({ preventScroll: true });
    }
    if (!fresh.getElementById("progress")) document.getElementById("progress")?.remove(); // It is over.
    if (fresh.title) document.title = fresh.title;
    follow();
  };
  const refresh = async () => {
    if (ended) return;
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { "x-live": "1" }, credentials: "same-origin" });
      if (answer.status === 401) {
        ended = true;
        say("Your session is over.", `/login?back=${encodeURIComponent(location.pathname + location.search)}`);
      } else if (answer.ok) {
        swap(new DOMParser().parseFromString(await answer.text(), "text/html"));
      } else if (answer.status === 404) {
        say("This is gone. Reload the page.");
      }
    } catch {
      say("The server cannot be reached. Trying again …");
      setTimeout(refresh, POLL_MS);
    } finally {
      busy = false;
      if (again) { again = false; soon(); }
    }
  };
  let timer = 0;
  const soon = () => { if (!timer) timer = setTimeout(() => { timer = 0; refresh(); }, GATHER_MS); };

  // What happens ---------------------------------------------------------------------------------------------------------
  let source = null;
  let lost = 0;
  const progress = (it) => {
    const place = document.getElementById("progress");
    if (!place) return;
    place.hidden = false;
    const bar = place.querySelector("progress");
    if (it.total) { bar.max = it.total; bar.value = it.done; } else bar.removeAttribute("value");
    place.querySelector("span").textContent = `${it.done}${it.total ? ` of ${it.total}` : ""} ${it.unit} ${it.message}`;
  };
  const poll = () => setInterval(() => { if (!document.hidden) refresh(); }, POLL_MS);
  const listen = () => {
    source = new EventSource(body.dataset.live);
    let begun = false;
    source.onopen = () => {
      clearTimeout(lost);
      lost = 0;
      if (!ended) say("");
      if (begun) soon(); // Whatever happened meanwhile: read it all anew.
      begun = true;
    };
    source.onmessage = soon;
    source.addEventListener("command.progress", (event) => progress(JSON.parse(event.data)));
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) {
        clearTimeout(lost);
        lost = 0;
        poll();
        refresh();
      } else if (!lost) {
        lost = setTimeout(() => say("The connection is lost. Trying again …"), 5000);
      }
    };
  };
  if (body.dataset.live) {
    listen();
    // What depends on more than its own events is marked `data-stale`: why something waits.
    setInterval(() => { if (!document.hidden && document.querySelector("[data-stale]")) refresh(); }, POLL_MS);
    // A laptop that was closed for an hour may hold a connection that is dead without knowing it.
    document.addEventListener("visibilitychange", () => { if (!document.hidden) soon(); });
    window.addEventListener("online", soon);
    window.addEventListener("pageshow", (event) => { if (event.persisted) soon(); });
  }

  // Output of programs -----------------------------------------------------------------------------------------------------
  // `data-output` names where it is read, `data-attempt`, `data-stdout` and `data-stderr` how far it was shown.
  const followed = new WeakSet();
  const follow = () => {
    for (const pane of document.querySelectorAll("[data-output]")) {
      if (followed.has(pane)) continue;
      followed.add(pane);
      read(pane);
    }
  };
  const read = async (pane) => {
    const decoders = {};
    let place = { attempt: pane.dataset.attempt, stdout: pane.dataset.stdout, stderr: pane.dataset.stderr };
    let pause = 1000;
    while (pane.isConnected && !ended) {
      try {
        const answer = await fetch(`${pane.dataset.output}?${new URLSearchParams(place)}`, { headers: { "x-live": "1" } });
        if (!answer.ok) throw new Error(String(answer.status));
        const said = await answer.json();
        for (const piece of said.pieces) {
          const name = `${piece.attempt} ${piece.stream}`;
          decoders[name] ??= new TextDecoder();
          const bytes = Uint8Array.from(atob(piece.bytes), (it) => it.charCodeAt(0));
          const isEnd = pane.scrollTop + pane.clientHeight >= pane.scrollHeight - 4;
          const line = document.createElement("span");
          line.className = piece.stream;
          line.textContent = decoders[name].decode(bytes, { stream: true });
          pane.append(line);
          if (isEnd) pane.scrollTop = pane.scrollHeight;
        }
        place = said.next;
        pause = 1000;
        if (said.isOver) { soon(); return; }
      } catch {
        await new Promise((done) => setTimeout(done, pause));
        pause = Math.min(pause * 2, 15_000);
      }
    }
  };
  follow();

  // Forms ------------------------------------------------------------------------------------------------------------------
  for (const form of document.querySelectorAll("form[data-auto]")) {
    form.addEventListener("change", (event) => { if (event.target.matches("select")) form.requestSubmit(); });
  }
  const fits = (field) => {
    const limit = Number(field.dataset.maxBytes);
    const bytes = new TextEncoder().encode(field.value).length;
    field.setCustomValidity(bytes > limit ? `This has ${bytes} bytes; at most ${limit} are taken.` : "");
  };
  for (const field of document.querySelectorAll("[data-max-bytes]")) field.addEventListener("input", () => fits(field));
  for (const form of document.querySelectorAll("form[data-confirm]")) {
    form.addEventListener("submit", (event) => { if (!confirm(form.dataset.confirm)) event.preventDefault(); });
  }
})();
