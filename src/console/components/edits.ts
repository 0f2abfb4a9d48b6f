import { useRef, useState } from 'react'
import { toFailure } from '../api.ts'
import { changedFields } from '../lib/changes.ts'
import { texts } from '../texts.ts'

/** A save that would replace what others have saved since the person began to edit the same fields. */
export class Clash extends Error {
  readonly fields: readonly { label: string; theirs: unknown; mine: unknown }[]
  /** Gives the edits of these fields up for the values that others have saved. */
  readonly giveUp: () => void

  constructor(fields: Clash['fields'], giveUp: () => void) {
    super(texts.clash.of(fields.map(({ label }) => label).join(', ')))
    this.fields = fields
    this.giveUp = giveUp
  }
}

const isSame = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b)

const namesOf = <Fields extends object>(fields: Partial<Fields>) => Object.keys(fields) as (keyof Fields)[]

const pick = <Fields extends object>(fields: Partial<Fields>, names: readonly (keyof Fields)[]): Partial<Fields> =>
  Object.fromEntries(names.map((name) => [name, fields[name]])) as Partial<Fields>

/**
 * The fields of a form about something that others may change meanwhile. A field that the person has not edited follows
 * the saved one. `check` reads the saved fields again and sends a change with them. It throws {@link Clash} if others
 * have changed an edited one; the next `check` sends it. Without `read` there is nothing saved yet, and nothing any
 * more if it returns null.
 */
export function useEdits<Fields extends object>(
  saved: Fields,
  labels: Readonly<Record<keyof Fields, string>>,
  read: (() => Promise<Fields | null>) | null,
) {
  // Beside the edits: the saved values that they replace, as the person has seen them.
  const [{ written, seen }, setState] = useState<Record<'written' | 'seen', Partial<Fields>>>({ written: {}, seen: {} })
  /** The last values that this form has saved, or may have. The person may edit them again before the page reads them. */
  const sent = useRef<Partial<Fields>>({})
  const edits = changedFields(saved, { ...saved, ...written })
  const names = namesOf(edits)
  const drop = (dropped: readonly (keyof Fields)[]) =>
    setState((state) => {
      const kept = namesOf(state.written).filter((name) => !dropped.includes(name))
      return { written: pick(state.written, kept), seen: pick(state.seen, kept) }
    })
  // An edit that is saved would come back when others change the field again.
  const done = namesOf(written).filter((name) => !names.includes(name))
  if (done.length) drop(done)

  const set = (changes: Partial<Fields>) => {
    const changed = changedFields(saved, { ...saved, ...edits, ...changes })
    setState({ written: changed, seen: { ...pick(saved, namesOf(changed)), ...pick(seen, names) } })
  }

  /** Sends the edits, and remembers them as sent unless the server refuses them. */
  async function note<Answer>(send: () => Promise<Answer>): Promise<Answer> {
    const before = sent.current
    const mine = { ...before, ...edits }
    sent.current = mine
    try {
      return await send()
    } catch (error) {
      const { status } = toFailure(error)
      if (status >= 400 && status < 500 && sent.current === mine) sent.current = before
      throw error
    }
  }

  async function check<Answer>(send: (now: Fields) => Promise<Answer>): Promise<Answer> {
    const now = await read?.()
    const isKnown = (name: keyof Fields, value: unknown) =>
      [seen, edits, sent.current].some((fields) => isSame(value, fields[name]))
    const clashing = names.filter((name) => now && !isKnown(name, now[name]))
    if (!now || !clashing.length) return note(() => send(now ?? saved))
    setState((state) => ({ ...state, seen: { ...state.seen, ...pick(now, clashing) } }))
    throw new Clash(
      clashing.map((name) => ({ label: labels[name], theirs: now[name], mine: edits[name] })),
      () => drop(clashing),
    )
  }

  return { draft: { ...saved, ...edits }, edits, isChanged: names.length > 0, set, check }
}
