const FOCUSABLE =
  ':is(a[href], button, input, select, textarea, summary, [tabindex="0"]):not(:disabled, [hidden], [tabindex="-1"])'

/** Returns the first control of the child that is now at an index, or else the last control of its parent. */
function nearest(parent: Element, index: number): HTMLElement | null {
  const child = parent.children[index]
  const own = child?.matches(FOCUSABLE) ? child : child?.querySelector(FOCUSABLE)
  return (own ?? [...parent.querySelectorAll(FOCUSABLE)].at(-1) ?? null) as HTMLElement | null
}

/** Returns the control that follows one at an index of an element, which disappeared or is disabled. */
function successor(control: Element, parent: Element, index: number): HTMLElement | null {
  const main = document.getElementById('main')
  if (!main || parent === main || parent.contains(main)) return main
  // It may have been drawn anew, such as the arrows between branches.
  const name = CSS.escape(control.getAttribute('aria-label') ?? '')
  const again = parent.children[index]?.querySelector<HTMLElement>(`[aria-label="${name}"]`)
  if (again) return again.matches(FOCUSABLE) ? again : nearest(again.parentElement ?? parent, 0)
  const composer = parent.closest('section, form')?.querySelector<HTMLTextAreaElement>('[data-composer]')
  if (composer?.form?.contains(parent)) return composer
  // A list that scrolls takes the focus itself when it is empty.
  const near = nearest(parent, index) ?? (parent.matches(FOCUSABLE) ? (parent as HTMLElement) : null)
  return (control.isConnected || parent.matches('ul, ol, tbody') ? (near ?? composer) : (composer ?? near)) ?? main
}

/**
 * Keeps the place of a person who uses the keyboard when the control that has the focus disappears or is disabled, such
 * as the button that deletes a row. Moves the focus to the same place of the list, to the composer, or to the content
 * of the page.
 */
export function keepFocus(): void {
  /** The control with the focus and the elements around it, with their places in their parents. */
  let path: { element: Element; index: number }[] = []
  // A finger that ends something must not open the keyboard on the screen.
  let isKeyboard = false
  const note = ({ type }: Event) => {
    isKeyboard = type === 'keydown'
  }
  for (const type of ['keydown', 'pointerdown']) document.addEventListener(type, note, true)
  document.addEventListener('focusin', ({ target }) => {
    path = []
    for (let element = target instanceof Element ? target : null; element; element = element.parentElement) {
      path.push({ element, index: element.parentElement ? [...element.parentElement.children].indexOf(element) : 0 })
    }
  })
  const restore = () => {
    const control = path[0]?.element
    if (!control || !isKeyboard || document.activeElement !== document.body) return
    if (control.isConnected && !control.matches(':disabled')) return
    const at = Math.max(
      1,
      path.findIndex(({ element }) => element.isConnected),
    )
    const parent = path[at]?.element
    if (parent) successor(control, parent, path[at - 1]?.index ?? 0)?.focus()
  }
  new MutationObserver(restore).observe(document.body, {
    childList: true,
    subtree: true,
    attributeFilter: ['disabled'],
  })
}
