const GAP = 4

/** Places a box below or above its anchor, within the window. */
export function place(box: HTMLElement, anchor: DOMRect, align: 'start' | 'end'): void {
  const { offsetWidth: width, offsetHeight: height } = box
  const left = align === 'start' ? anchor.left : anchor.right - width
  const below = window.innerHeight - anchor.bottom
  const top = below < height + 2 * GAP && anchor.top > below ? anchor.top - height - GAP : anchor.bottom + GAP
  box.style.left = `${Math.max(GAP, Math.min(left, window.innerWidth - width - GAP))}px`
  box.style.top = `${Math.max(GAP, Math.min(top, window.innerHeight - height - GAP))}px`
}
