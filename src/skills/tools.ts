import { z } from 'zod'
import type { Deps } from '../deps.ts'
import { notFound } from '../errors.ts'
import { defineTool, type Toolbox, type ToolUser } from '../executions/engine/run/tools.ts'
import { organizationsOnLatest } from '../organizations/policy.ts'
import { findMany, type SkillOutput } from './rows.ts'
import { atPins, type Pin } from './versions.ts'

/** The skills of a run: their instructions, the tool that loads one, and the built-in tools they use. */
export type OpenedSkills = Pick<Toolbox, 'tools' | 'instructions'> & {
  builtInTools: ReadonlySet<string>
  /** Whether some of them belong to another organization. */
  hasForeign: boolean
}

/** Maximum length of the instructions of all skills together (characters). */
const MAX_INSTRUCTIONS = 200_000

/**
 * Opens the skills of a run's agent and space that are currently reachable, so without deleted skills and those made
 * private by others. Each has the version at which it was attached, unless the attaching organization's policy says
 * `attachments: latest` (contract-2.md section 8.5). The model sees names and descriptions, and loads a prompt when it
 * needs it.
 *
 * An agent of another organization brings only the skills that its organization shares. Their text goes into the prompt
 * instead of being loaded, because tool results are visible to the caller, who may not see it (contract.md section 2).
 */
export async function openSkills({ db }: Pick<Deps, 'db'>, user: ToolUser): Promise<OpenedSkills> {
  const { row, agent } = user
  const { organizationId } = agent
  const isForeign = organizationId !== row.organizationId
  const refs = await db.spaceSkill.findMany({
    where: { spaceId: row.spaceId, enabled: true },
    orderBy: [{ addedAt: 'asc' }, { skillId: 'asc' }],
  })
  const ofSpace = refs.map(({ skillId }) => skillId)
  const ofAgent = agent.skillIds as string[]
  const hasTools = refs.length + ofAgent.length > 0
  const latest = await organizationsOnLatest(db, hasTools ? [organizationId, row.organizationId] : [])
  const agentPins = latest.has(organizationId) ? [] : (agent.skillRefs as Pin[])
  const spacePins = latest.has(row.organizationId) ? [] : refs
  // A skill attached to both has the agent's version.
  const pins = pinsOf(isForeign ? spacePins : [...spacePins, ...agentPins])
  const found = await findMany(await user.actor(), db, [...new Set(isForeign ? ofSpace : [...ofAgent, ...ofSpace])])
  const reachable = await atPins(db, found, pins)
  const theirs = isForeign ? await findMany({ organizationId, userId: '' }, db, ofAgent) : []
  const pinned = await atPins(db, theirs, pinsOf(agentPins))
  const known = byName(reachable)
  return {
    instructions: [...(known.size ? [describe(known)] : []), ...instructionsOf(pinned)],
    tools: known.size ? [loader(db, user, known, pins)] : [],
    hasForeign: pinned.length > 0 || reachable.some(({ source }) => source === 'marketplace'),
    builtInTools: new Set([...reachable, ...pinned].flatMap(({ builtInTools }) => builtInTools)),
  }
}

const pinsOf = (pins: readonly Pin[]) => new Map(pins.map(({ skillId, version }) => [skillId, version]))

/** Gives each skill a unique name: later skills with the same name get a number. */
function byName(skills: readonly SkillOutput[]): Map<string, SkillOutput> {
  const known = new Map<string, SkillOutput>()
  for (const skill of skills) {
    let name = skill.name
    for (let number = 2; known.has(name); number++) name = `${skill.name}-${number}`
    known.set(name, skill)
  }
  return known
}

const describe = (known: ReadonlyMap<string, SkillOutput>): string => {
  const list = [...known].map(([name, { description }]) => `- ${name}: ${description.replace(/\s+/g, ' ').trim()}`)
  return [
    'You have skills: instructions for certain kinds of work. Before you start such work, call',
    'load_skill with the name of the skill, once, and follow its instructions.',
    ...list,
  ].join('\n')
}

function loader(
  db: Deps['db'],
  { actor }: ToolUser,
  known: ReadonlyMap<string, SkillOutput>,
  pins: ReadonlyMap<string, number | null>,
) {
  const name = z.enum([...known.keys()]).describe('The skill')
  const load = defineTool('load_skill', 'Loads the instructions of one of your skills.', z.object({ name }))
  return load(async (input) => {
    const [skill] = await atPins(db, await findMany(await actor(), db, [known.get(input.name)?.id ?? '']), pins)
    if (!skill) throw notFound('Skill')
    return skill.prompt
  })
}

function instructionsOf(skills: readonly SkillOutput[]): string[] {
  let left = MAX_INSTRUCTIONS
  return skills.flatMap(({ displayName, description, prompt }) => {
    left -= prompt.length
    return left < 0
      ? []
      : [`For this kind of work – ${displayName}: ${description} – follow these instructions:\n\n${prompt}`]
  })
}
