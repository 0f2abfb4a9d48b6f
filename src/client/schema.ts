import { z } from 'zod'
import { Execute } from '../executions/schema.ts'
import { ok, requiredEnum, requiredText, text } from '../lib/fields.ts'
import { Secrets } from '../secrets/schema.ts'
import { Space } from '../spaces/schema.ts'

const spaceId = z.string().describe('The space')
const orgId = z.string().nullish().describe('Its organization, if you want to be sure: another one is refused')

const InitType = requiredEnum(
  ['empty', 'git', 'readme', 'starterKit'],
  'Invalid type. Must be: empty, git, readme, starterKit',
).meta({ id: 'SpaceInitType' })

/** POST /spaces/{spaceId}/init (service.md, "F"; contract.md section 6). */
export const InitSpace = z
  .object({
    spaceId,
    type: InitType.describe('Nothing, a README.md, that with an AGENTS.md and an example skill, or a repository'),
    orgId,
    spaceName: requiredText(200).nullish().describe('A new name for the space'),
    url: text(2000).nullish().describe('For `git`: the https address of a public repository'),
    branch: text(250).nullish().describe("For `git`: the branch or tag; by default the repository's own choice"),
  })
  .meta({ examples: [{ type: 'starterKit' }] })

export const SpaceInitialized = ok({
  space: Space,
  files: z.array(z.string()).describe('The paths of the files that it got; what was there stayed'),
  skipped: z
    .int()
    .describe('What a repository has beside: links, submodules, too large files, paths that are none here'),
})

/** POST /spaces/{spaceId}/environment. */
export const SetEnvironment = z
  .object({ spaceId, orgId, environmentVariables: Secrets })
  .meta({ examples: [{ environmentVariables: { GITHUB_TOKEN: 'ghp_…' } }] })

export const EnvironmentSet = ok({ keys: z.array(z.string()), count: z.int() })

/** POST /agent/execute: {@link Execute} with another name for the agent. */
export const ExecuteCharacter = Execute.omit({ id: true })
  .extend({ characterId: requiredText(100).describe('The agent'), orgId })
  .meta({ examples: [{ characterId: 'k3Jx0aQ9mZr7TbYc2LwVn5', message: 'Hello' }] })
