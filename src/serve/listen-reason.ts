/** Why a server cannot listen on a port, as what to do about it. */
export function listenReason({ code, message }: NodeJS.ErrnoException): string {
  if (code === 'EADDRINUSE')
    return 'another program has this port; name another one, or 0 for any that is free';
  if (code === 'EACCES') return 'ports below 1024 need privileges; name another one';
  if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND') return 'this machine has no such address';
  return message;
}
