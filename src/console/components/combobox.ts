import { type KeyboardEvent, useEffect, useId, useRef, useState } from 'react'
import { isComposing } from '../lib/composing.ts'

/** Returns whether a text has each word of a search, in any case. */
export const fits = (text: string, search: string): boolean =>
  search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.toLowerCase().includes(word))

/**
 * The keyboard of a text field with a list of options below it, by the pattern "combobox" of WAI-ARIA: the focus stays
 * in the field, arrows go through the options, Enter chooses one. Returns attributes for the three kinds of elements.
 * Options that arrive later, in any order, leave the current one, which is the first until the person goes to another.
 */
export function useCombobox<Item extends { key: string }>(items: readonly Item[], choose: (item: Item) => void) {
  const id = useId()
  const list = useRef<HTMLDivElement>(null)
  const [wanted, goTo] = useState<string | null>(null)
  const current = Math.max(
    0,
    items.findIndex(({ key }) => key === wanted),
  )
  const currentKey = items[current]?.key

  // biome-ignore lint/correctness/useExhaustiveDependencies: the current option comes into view
  useEffect(() => {
    list.current?.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest' })
  }, [currentKey])

  return {
    /** Makes an option the current one, or the first again. */
    goTo,
    field: {
      'aria-autocomplete': 'list',
      'aria-controls': items.length ? `${id}-list` : undefined,
      'aria-activedescendant': currentKey === undefined ? undefined : `${id}-${currentKey}`,
      autoComplete: 'off',
      spellCheck: false,
      onKeyDown(event: KeyboardEvent) {
        if (isComposing(event)) return
        const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
        if (step) {
          event.preventDefault()
          goTo(items.at((current + step) % items.length)?.key ?? null)
        }
        const item = items[current]
        if (event.key === 'Enter' && item) choose(item)
      },
    },
    listbox: { ref: list, id: `${id}-list`, tabIndex: -1 },
    optionOf(item: Item) {
      const index = items.indexOf(item)
      return {
        id: `${id}-${item.key}`,
        tabIndex: -1,
        'aria-selected': index === current,
        onPointerMove: () => goTo(item.key),
        onClick: () => choose(item),
      }
    },
  } as const
}
