/**
 * Has screen readers read a text, once they have read the current one. It replaces the text before it in its region, also
 * an unread one: the title of a page, which may come late, has a region of its own.
 */
export function announce(text: string, region: 'announcer' | 'title-announcer' = 'announcer'): void {
  const announcer = document.getElementById(region)
  if (announcer) announcer.textContent = text
}
