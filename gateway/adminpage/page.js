"use strict";

// Fetches the numbers again, every two seconds while somebody looks. The page is
// whole without this script. What comes is in the order in which it stands here.
(() => {
	const every = 2000;
	const body = document.body;
	const at = (id) => document.getElementById(id);
	const all = (selector) => Array.from(document.querySelectorAll(selector));
	const cells = all("tbody td > span");
	const bars = all("tbody meter");
	const rows = all("tbody tr");
	const charts = all("figure").map((f) => [f.querySelector("b"), f.querySelector("p span"), f.querySelector("polyline")]);
	let sample = body.dataset.sample;
	let answered = Date.now();

	const say = (node, text) => { if (node.textContent !== text) node.textContent = text; };

	const show = (u) => {
		say(at("state"), u.state);
		say(at("why"), u.why);
		at("state").classList.toggle("not", u.why !== "");
		document.title = "Sluice: " + u.state;
		say(at("up"), u.up);
		u.cells.forEach((text, i) => say(cells[i], text));
		u.bars.forEach(([value, most], i) => { bars[i].max = most; bars[i].high = 0.9 * most; bars[i].value = value; });
		const hidden = new Set(u.hidden);
		rows.forEach((row, i) => { row.hidden = hidden.has(i); });
		(u.charts || []).forEach(([last, most, points], i) => {
			const [now, top, line] = charts[i];
			say(now, last);
			say(top, most);
			line.setAttribute("points", points);
		});
		sample = u.sample;
		body.dataset.updates = Number(body.dataset.updates || 0) + 1;
	};

	const look = async () => {
		if (!document.hidden) {
			try {
				const answer = await fetch("live.json?sample=" + sample, { cache: "no-store", signal: AbortSignal.timeout(5 * every) });
				if (!answer.ok) throw new Error(answer.status);
				const u = await answer.json();
				if (u.shape !== body.dataset.shape) {
					location.reload(); // another version: its rows are others
					return;
				}
				show(u);
				answered = Date.now();
				say(at("stale"), "");
			} catch {
				say(at("stale"), "no answer for " + Math.round((Date.now() - answered) / 1000) + " s ·");
			}
		}
		setTimeout(look, every);
	};
	setTimeout(look, every);
	document.addEventListener("visibilitychange", () => { answered = Date.now(); });
})();
