import type { Deps } from '../deps.ts'
import type { KnownAgent } from './known.ts'

// The hosted original's client calls an agent a character, and looks for it under that name (contract-2.md section 1.15).

const toCharacter = (agent: KnownAgent) => ({
  ...agent,
  characterDescription: agent.description,
  system_message: agent.systemPrompt,
})

/** The prefix of the hosted original's tokens. */
const PREFIX = 'td'

/** Adds `character` beside `agent`, and `characters` beside `agents`, where tokens have the hosted original's prefix. */
export function withCharacters<Answer extends { agent?: KnownAgent; agents?: KnownAgent[] }>(
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
