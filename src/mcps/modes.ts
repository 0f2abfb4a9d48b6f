import type { z } from 'zod'
import type { Prisma } from '../db/client.ts'
import type { Permission } from './schema.ts'

/** Modes of tools, at most one for each; `*` is every other tool. */
export type Modes = z.infer<typeof Permission>[]

export type Mode = Modes[number]['mode']

/** From the loosest to the strictest. */
const MODES: readonly Mode[] = ['allow', 'ask', 'deny']

/**
 * Returns the permissions of a server's tools: its own, tightened by those of the operator. A tool without an entry
 * needs no approval (contract.md section 7).
 */
export function permissionsOf(row: { permissions: Prisma.JsonValue; operatorModes: Prisma.JsonValue }): Modes {
  const [own, least] = [row.permissions as Modes, row.operatorModes as Modes]
  if (!least.length) return own
  const tools = new Set([...least, ...own].map(({ tool }) => tool))
  return Array.from(tools, (tool) => ({ tool, mode: stricter(modeIn(own, tool), modeIn(least, tool)) }))
}

/** Returns the mode of a tool: its own entry, otherwise that of `*`. */
export const modeIn = (modes: Modes, name: string): Mode =>
  (modes.find(({ tool }) => tool === name) ?? modes.find(({ tool }) => tool === '*'))?.mode ?? 'allow'

/** Returns whether a mode permits more than another. */
export const isLooser = (one: Mode, other: Mode) => MODES.indexOf(one) < MODES.indexOf(other)

/** Returns the mode that permits less. */
export const stricter = (one: Mode, other: Mode) => (isLooser(one, other) ? other : one)
