/** Light, dark, or the system's theme; remembered where the browser lets a page remember. */

const CHOICES = ['auto', 'light', 'dark'] as const;
type Choice = (typeof CHOICES)[number];
const KEY = 'steptrain-theme';

export function connectTheme(changed: () => void): void {
  const button = document.getElementById('theme');
  const name = document.getElementById('theme-name');
  const show = (choice: Choice) => {
    if (choice === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    if (name) name.textContent = choice;
    button?.setAttribute('aria-label', `Colours: ${choice === 'auto' ? 'as the system' : choice}`);
  };
  let choice = remembered();
  show(choice);
  button?.addEventListener('click', () => {
    choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length] as Choice;
    show(choice);
    remember(choice);
    changed();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', changed);
}

function remembered(): Choice {
  try {
    return CHOICES.find((choice) => choice === localStorage.getItem(KEY)) ?? 'auto';
  } catch {
    return 'auto'; // a page from a file may not have storage
  }
}

function remember(choice: Choice): void {
  try {
    localStorage.setItem(KEY, choice);
  } catch {}
}
