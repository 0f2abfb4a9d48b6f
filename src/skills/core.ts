import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { z } from 'zod'
import type { BUILT_IN_TOOLS } from '../lib/built-in-tools.ts'
import type { Skill, SkillCategory } from './schema.ts'

type About = {
  description: string
  category: z.output<typeof SkillCategory>
  builtInTools: (typeof BUILT_IN_TOOLS)[number][]
}

const FILES = ['list_files', 'read_file', 'write_file'] as const

/** The built-in skills by name. Their prompts are in `core/<name>.md`. */
const ABOUT: Record<string, About> = {
  'research-brief': {
    description: 'Answers a question from sources: findings, confidence, open points. Writes a brief with citations.',
    category: 'research',
    builtInTools: [...FILES],
  },
  'clear-writing': {
    description: 'Drafts, edits or shortens a text for its readers: structure first, then sentences, then a check.',
    category: 'writing',
    builtInTools: ['read_file', 'write_file'],
  },
  'data-analysis': {
    description:
      'Answers questions about tables (CSV, TSV, JSON): checks the data first, shows how each number came about.',
    category: 'data',
    builtInTools: [...FILES],
  },
  'code-review': {
    description: 'Reviews code for defects, ranks what it finds by harm, and turns what must be done into tasks.',
    category: 'code',
    builtInTools: ['list_files', 'read_file', 'create_task'],
  },
  'task-planning': {
    description: 'Turns a goal or a pile of notes into tasks, keeps the list true, and reports where the work stands.',
    category: 'productivity',
    builtInTools: ['list_tasks', 'create_task', 'update_task', 'claim_task'],
  },
  'file-organizer': {
    description: "Takes stock of a space's files, proposes a layout, merges and summarizes documents, keeps an index.",
    category: 'file-handling',
    builtInTools: [...FILES],
  },
}

const SINCE = '2026-11-21T00:00:00.000Z'

/** Converts a name: `data-analysis` → `Data Analysis`. */
export const toDisplayName = (name: string): string =>
  name.replace(/(^|-)([a-z])/g, (_, dash: string, letter: string) => (dash && ' ') + letter.toUpperCase())

/** The built-in skills, newest first as in every list. Their ids are `core-<name>`, which no row has. */
export const CORE_SKILLS: readonly z.input<typeof Skill>[] = Object.entries(ABOUT)
  .map(([name, about]) => ({
    id: `core-${name}`,
    name,
    displayName: toDisplayName(name),
    ...about,
    prompt: readFileSync(join(import.meta.dirname, 'core', `${name}.md`), 'utf8'),
    requiredMCPs: [],
    visibility: 'public' as const,
    source: 'core' as const,
    organizationId: 'core',
    ownerId: 'core',
    version: 1,
    createdAt: SINCE,
    updatedAt: SINCE,
  }))
  .sort((a, b) => (a.id < b.id ? 1 : -1))
