import type { Deps } from '../deps.ts'
import type { CachedAgent } from './agent-cache.ts'

// Converts an agent for the hosted original's client, which expects agents as `character` (contract-2.md section 1.15).

const toCharacter = (agent: CachedAgent) => ({
  ...agent,
  characterDescription: agent.description,
  system_message: agent.systemPrompt,
})

/** Token prefix of the hosted original. */
const PREFIX = 'td'

/** Adds `character` beside `agent`, and `characters` beside `agents`, if tokens have the hosted original's prefix. */
export function withCharacters<Answer extends { agent?: CachedAgent; agents?: CachedAgent[] }>(
  { settings }: Pick<Deps, 'settings'>,
  answer: Answer,
) {
  if (settings.TOKEN_PREFIX !== PREFIX) return answer
  const { agent, agents } = answer
  return {
    ...answer,
    ...(agent && { character: toCharacter(agent) }),
    ...(agents && { characters: agents.map(toCharacter) }),
  }
}
