import { z } from 'zod'
import { AgentCard, ListPublicAgents } from '../agents/schema.ts'
import { Execute } from '../executions/schema.ts'
import { FileDeleted, FileResponse, WriteFile } from '../files/schema.ts'
import { CreateKey, Key, KeyCreated, KeyDeleted, ListKeys } from '../keys/schema.ts'
import { ok, requiredEnum, requiredText, text, timestamp } from '../lib/fields.ts'
import { flag, nextCursor } from '../lib/page.ts'
import { Secrets } from '../secrets/schema.ts'
import { Space } from '../spaces/schema.ts'

const spaceId = z.string().describe('The space')
const orgId = z.string().nullish().describe("Id of the space's organization. Another id is refused")

const InitType = requiredEnum(
  ['empty', 'git', 'readme', 'starterKit'],
  'Invalid type. Must be: empty, git, readme, starterKit',
).meta({ id: 'SpaceInitType', description: 'Files with which a space begins' })

/** POST /spaces/{spaceId}/init (service.md, "F"; contract.md section 6). */
export const InitSpace = z
  .object({
    spaceId,
    type: InitType.describe('First files: none, a README.md, also an AGENTS.md and an example skill, or a repository'),
    orgId,
    spaceName: requiredText(200).nullish().describe('A new name for the space'),
    url: text(2000).nullish().describe('For `git`: the https address of a public repository'),
    branch: text(250).nullish().describe("For `git`: the branch or tag. Default: the repository's default branch"),
  })
  .meta({ examples: [{ type: 'starterKit' }] })

export const SpaceInitialized = ok({
  space: Space,
  files: z.array(z.string()).describe('Paths of the files that were added. Existing files stayed'),
  skipped: z
    .int()
    .describe(
      'Contents of the repository that were left out: links, submodules, too large files, paths that are invalid here',
    ),
})

/** POST /spaces/{spaceId}/environment. */
export const SetEnvironment = z
  .object({
    spaceId,
    orgId,
    environmentVariables: Secrets.describe(
      'Secrets of the space, by name; each a text, or an object with `value` and `hosts`',
    ),
  })
  .meta({ examples: [{ environmentVariables: { GITHUB_TOKEN: 'ghp_…' } }] })

export const EnvironmentSet = ok({
  keys: z.array(z.string()).describe('Names of the secrets that were set'),
  count: z.int().describe('Number of the secrets that were set'),
})

/** POST /agent/execute: {@link Execute} with another name for the agent. */
export const ExecuteCharacter = Execute.omit({ id: true })
  .extend({ characterId: requiredText(100).describe('The agent'), orgId })
  .meta({ examples: [{ characterId: 'k3Jx0aQ9mZr7TbYc2LwVn5', message: 'Hello' }] })

const organizationId = z.string().nullish().describe('Id of your organization. Another id is refused')

/** POST /tokens/create (contract-2.md section 1.15): {@link CreateKey}. */
export const CreateToken = CreateKey.extend({ organizationId }).meta({ examples: [{ name: 'CI', expiresInDays: 90 }] })
export const TokenCreated = KeyCreated

/** GET /tokens/list. */
export const ListTokens = ListKeys.extend({ organizationId })

const ListedToken = Key.omit({ preview: true, expiresAt: true })
  .extend({
    tokenPreview: Key.shape.preview.describe('Alias of `preview`'),
    expiresAt: timestamp.describe('Time at which it expires; in the year 9999 for a key that does not expire'),
  })
  .meta({ id: 'ListedToken', description: 'A personal access token, without its secret' })

export const TokensResponse = ok({
  tokens: z.array(ListedToken).describe('Your keys, newest first'),
  count: z.int().describe('Number of keys in this answer'),
  nextCursor,
})

/** POST /tokens/{tokenId}/revoke. */
export const RevokeToken = z.object({ tokenId: z.string().describe('The key') })
export const TokenRevoked = KeyDeleted

const path = z
  .string()
  .max(1000)
  .describe('Path such as `docs/plan.md`. Slashes at both ends are ignored; `/` is the root of the space')

/** GET /files/browse and /spaces/{spaceId}/files/browse. */
export const BrowseFiles = z.object({
  spaceId,
  path: path.optional().describe('Folder in the space. Default: its top'),
  recursive: flag('recursive').describe('Include everything below the folder'),
  showHidden: flag('showHidden').describe('Include names that begin with a dot'),
  organizationId,
})

/** A file or a folder of a space. */
export const Entry = z
  .object({
    name: z.string().describe('Name in the folder; with `recursive`, the path below the folder'),
    path: z.string().describe('Its path in the space'),
    type: z.enum(['file', 'directory']).describe('Whether the entry is a file or a folder'),
    size: z.int().describe('In bytes; 0 for a folder'),
    modified: timestamp.nullable().describe('When a file was last written; null for a folder'),
  })
  .meta({ id: 'SpaceEntry', description: 'A file or folder of a space' })

const entries = z.array(Entry)

export const FolderResponse = ok({
  spaceId: z.string().describe('Id of the space'),
  path: z.string().describe('The folder, with a slash before it'),
  type: z.literal('directory').describe('The path is a folder'),
  contents: entries.describe('Contents of the folder, folders first'),
  files: entries.describe('Alias of `contents`'),
})

/** GET /files/read and POST /files/delete. */
export const OneFile = z
  .object({ spaceId, path, organizationId })
  .meta({ examples: [{ spaceId: 'k3Jx0aQ9mZr7TbYc2LwVn5', path: 'docs/plan.md' }] })

/** POST /files/write. */
export const WriteSpaceFile = OneFile.extend({
  content: WriteFile.shape.content.describe('Content of the file, in the given encoding'),
  encoding: WriteFile.shape.encoding.describe('Encoding of `content`. Default: `utf8`'),
}).meta({ examples: [{ spaceId: 'k3Jx0aQ9mZr7TbYc2LwVn5', path: 'docs/plan.md', content: '# Plan' }] })

export const OneFileResponse = FileResponse
export const OneFileDeleted = FileDeleted

/** POST /files/upload: a form with a `file`, whose place is in the address. */
export const UploadFile = z.object({
  spaceId,
  path: path.optional().describe('Folder in the space. Default: its top'),
  organizationId,
})
export const FileUploaded = ok({
  results: z
    .array(
      z
        .object({
          success: z.literal(true).describe('The file was stored'),
          fileName: z.string().describe('Name of the file'),
          filePath: z.string().describe('Its path in the space'),
          size: z.int().describe('Size of the file (bytes)'),
        })
        .meta({ id: 'UploadedSpaceFile', description: 'An uploaded file of a space' }),
    )
    .describe('The uploaded files'),
})

/** GET /public/agents. */
export const BrowseAgents = ListPublicAgents
export const DirectoryResponse = ok({
  data: z.array(AgentCard).describe('Agents on this page'),
  meta: z
    .object({
      timestamp: timestamp.describe('Time of the answer'),
      version: z.string().describe('The version of this answer'),
      total: z.int().describe('Number of agents in the directory that match'),
      nextCursor,
    })
    .meta({ id: 'DirectoryMeta', description: 'About the answer' }),
})
