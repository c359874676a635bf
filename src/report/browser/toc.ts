/** Marks the section that is read in the table of contents. */
export function markReading(): void {
  const links = [...document.querySelectorAll<HTMLAnchorElement>('nav a[href^="#"]')];
  const sections = links.map((link) => document.getElementById(link.hash.slice(1)));
  let isDue = false;
  const mark = () => {
    isDue = false;
    const line = innerHeight / 4;
    const current = sections.findLastIndex(
      (section) => section && section.getBoundingClientRect().top < line,
    );
    for (const [i, link] of links.entries()) {
      if (i === current) link.setAttribute('aria-current', 'true');
      else link.removeAttribute('aria-current');
    }
  };
  addEventListener(
    'scroll',
    () => {
      if (isDue) return;
      isDue = true;
      requestAnimationFrame(mark);
    },
    { passive: true },
  );
  mark();
}
