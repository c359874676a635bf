/** Buttons that ask the server for something: stop a run, resume it. */
export function connectActions(): void {
  document.addEventListener('click', async ({ target }) => {
    const button = target instanceof Element ? target.closest<HTMLButtonElement>('button[data-post]') : null;
    const address = button?.dataset.post;
    if (!button || address === undefined) return;
    button.disabled = true;
    const status = button.parentElement?.querySelector('[role="status"]');
    try {
      const answer = await fetch(address, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
      });
      if (status) status.textContent = await answer.text();
      if (!answer.ok) button.disabled = false;
    } catch {
      if (status) status.textContent = 'the server does not answer';
      button.disabled = false;
    }
  });
}
