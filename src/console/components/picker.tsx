import { Check, ChevronDown } from 'lucide-react'
import { type KeyboardEvent, useLayoutEffect, useRef, useState } from 'react'
import { cn } from '../lib/class-names.ts'
import { isComposing } from '../lib/composing.ts'
import { texts } from '../texts.ts'
import { fits, useCombobox } from './combobox.ts'
import { useFrame } from './dialog.tsx'
import { place } from './place.ts'

/** `key`: the value that it stands for. */
export type Option = { key: string; label: string; detail?: string | null }

/** Options below a title. */
export type Group = { title: string; options: readonly Option[] }

/** The properties of a picker that its users share. */
export type PickerProps = {
  id?: string
  /** The name of the field for screen readers. */
  label: string
  value: string
  onChange: (value: string) => void
  /** Options above the others, such as "All". */
  fixed?: readonly Option[]
  required?: boolean
  className?: string
  'aria-describedby'?: string
  'aria-invalid'?: true
}

type Props = PickerProps & {
  /** The text of a value that is not fixed. */
  name: string
  groups: readonly Group[]
  /** Called with the text that the person types, and with an empty one after the choice. */
  onSearch: (search: string) => void
  /** Whether the options of the search are still read. */
  isPending: boolean
  /** Whether the groups have only the first of many options. */
  hasMore: boolean
}

/** A field that chooses one of many options: shows the choice, and finds another one by what the person types. */
export function Picker(props: Props) {
  const { label, value, name, groups, onSearch, isPending, hasMore, onChange, fixed = [], className, ...rest } = props
  /** The text that the person has typed, null while the list is closed. */
  const [search, setSearch] = useState<string | null>(null)
  const { write } = useFrame()
  const input = useRef<HTMLInputElement>(null)
  const box = useRef<HTMLDivElement>(null)

  const shown = [{ title: '', options: fixed.filter((each) => fits(each.label, search ?? '')) }, ...groups]
  const options = shown.flatMap((group) => group.options)
  const isOpen = search !== null
  // The name of a new choice may still be read.
  const [last, setLast] = useState<Option | null>(null)
  const chosen = [...fixed, ...(last ? [last] : [])].find(({ key }) => key === value)?.label ?? name

  const type = (text: string) => {
    setSearch(text)
    goTo(null)
    onSearch(text.trim())
  }
  const close = () => {
    setSearch(null)
    onSearch('')
  }
  const { goTo, field, listbox, optionOf } = useCombobox(options, (option: Option) => {
    write()
    setLast(option)
    onChange(option.key)
    close()
  })
  const open = () => {
    setSearch('')
    goTo(value)
  }

  // The typed text replaces the choice.
  // biome-ignore lint/correctness/useExhaustiveDependencies: a name that was read is a new text of the field
  useLayoutEffect(() => {
    if (!isOpen && document.activeElement === input.current) input.current?.select()
  }, [chosen, isOpen])

  // Options that arrive change the size of the list.
  useLayoutEffect(() => {
    if (!isOpen) return
    const [list, anchor] = [box.current, input.current]
    if (!list || !anchor) return
    list.showPopover()
    const arrange = () => {
      const around = anchor.getBoundingClientRect()
      list.style.minWidth = `${around.width}px`
      place(list, around, 'start')
    }
    const observer = new ResizeObserver(arrange)
    observer.observe(list)
    window.addEventListener('resize', arrange)
    window.addEventListener('scroll', arrange, true)
    return () => {
      observer.disconnect()
      window.removeEventListener('resize', arrange)
      window.removeEventListener('scroll', arrange, true)
    }
  }, [isOpen])

  const onKeyDown = (event: KeyboardEvent) => {
    if (isComposing(event)) return
    if (!isOpen) {
      if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return
      event.preventDefault()
      return open()
    }
    // Neither sends the form nor closes the dialog around it.
    if (event.key === 'Enter' || event.key === 'Escape') event.preventDefault()
    if (event.key === 'Escape') close()
    else field.onKeyDown(event)
  }

  return (
    <div className={cn('relative', className)}>
      <input
        {...rest}
        role="combobox"
        {...field}
        ref={input}
        type="text"
        dir="auto"
        aria-label={label}
        maxLength={200}
        aria-expanded={isOpen}
        {...(isOpen ? {} : { 'aria-controls': undefined, 'aria-activedescendant': undefined })}
        className="field truncate pe-7"
        placeholder={chosen || texts.typeToSearch}
        value={search ?? chosen}
        onFocus={({ target }) => target.select()}
        onClick={() => isOpen || open()}
        onBlur={close}
        onKeyDown={onKeyDown}
        // A search changes nothing yet.
        onInput={(event) => event.stopPropagation()}
        onChange={({ target }) => type(target.value)}
      />
      <ChevronDown size={14} aria-hidden className="pointer-events-none absolute end-2 top-1/2 -translate-y-1/2" />
      {isOpen && (
        // A click leaves the focus in the field.
        // biome-ignore lint/a11y/noStaticElementInteractions: the field has the keys
        <div
          ref={box}
          popover="manual"
          className="fixed inset-auto m-0 max-h-80 max-w-[min(24rem,calc(100vw-1rem))] overflow-y-auto rounded-lg border border-line bg-raised p-1 text-ink text-sm shadow-lg"
          onMouseDown={(event) => event.preventDefault()}
        >
          {options.length > 0 && (
            <div role="listbox" {...listbox} aria-label={label}>
              {shown.map(
                (group) =>
                  group.options.length > 0 && (
                    <div key={group.title} role="group" aria-label={group.title || label}>
                      {group.title && shown.filter((each) => each.options.length).length > 1 && (
                        <div role="presentation" className="px-2 pt-1.5 pb-0.5 text-soft text-xs">
                          {group.title}
                        </div>
                      )}
                      {group.options.map((option) => (
                        <div
                          key={option.key}
                          role="option"
                          {...optionOf(option)}
                          className="flex cursor-default items-center gap-2 rounded px-2 py-1.5 aria-selected:bg-hover"
                        >
                          <span className="min-w-0 flex-1">
                            <span className="block truncate">
                              <bdi>{option.label}</bdi>
                            </span>
                            {option.detail && (
                              <span className="block truncate text-soft text-xs">
                                <bdi>{option.detail}</bdi>
                              </span>
                            )}
                          </span>
                          {option.key === value && <Check size={15} aria-hidden className="shrink-0 text-accent" />}
                        </div>
                      ))}
                    </div>
                  ),
              )}
            </div>
          )}
          <p
            role="status"
            className={cn('px-2 text-soft text-xs', (isPending || hasMore || !options.length) && 'py-1.5')}
          >
            {isPending ? texts.loading : !options.length ? texts.palette.nothing : hasMore && texts.typeForMore}
          </p>
        </div>
      )}
    </div>
  )
}
