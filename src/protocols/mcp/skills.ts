import { createHash } from 'node:crypto'
import { type McpServer, ProtocolError, ProtocolErrorCode } from '@modelcontextprotocol/server'
import { SkillsExtension } from '@modelcontextprotocol/server/ext/skills'
import type { Actor } from '../../auth/actor.ts'
import { AppError } from '../../errors.ts'
import { checkInput } from '../../lib/fields.ts'
import { listPage } from '../../skills/list.ts'
import type { SkillOutput } from '../../skills/rows.ts'
import type { Context } from '../../trpc.ts'

const PAGE = 100

/** Maximum number of pages that are searched for a skill's name. */
const MAX_PAGES = 10

/**
 * Offers the skills of the organization and of the service on a server, as prompts and by the skills extension. Public
 * skills of other organizations are not offered: their authors are strangers to the model's user.
 */
export function addSkills(mcp: McpServer, context: Context, actor: Actor): void {
  const { server } = mcp
  server.registerCapabilities({ prompts: { listChanged: true } })

  const page = async (cursor?: string) => {
    checkInput(cursor)
    const found = await listPage(actor, context.deps, { limit: PAGE, cursor: cursor || undefined }, true).catch(
      (error: unknown) => {
        throw error instanceof AppError && error.status === 400
          ? new ProtocolError(ProtocolErrorCode.InvalidParams, error.message)
          : error
      },
    )
    const own = found.skills.filter(({ source }) => source !== 'marketplace')
    const isOver = own.length < found.skills.length || found.nextCursor === null
    return {
      skills: own as (SkillOutput & { truncated?: boolean })[],
      ...(!isOver && { nextCursor: found.nextCursor! }),
    }
  }

  async function find(name: string): Promise<SkillOutput | undefined> {
    let cursor: string | undefined
    for (let pages = 0; pages < MAX_PAGES; pages++) {
      const { skills, nextCursor } = await page(cursor)
      const found = skills.find((skill) => skill.name === name)
      if (found || nextCursor === undefined) return found
      cursor = nextCursor
    }
    return undefined
  }

  server.setRequestHandler('prompts/list', async ({ params }) => {
    const { skills, ...rest } = await page(params?.cursor)
    const prompts = skills.map(({ name, displayName, description }) => ({
      name,
      title: displayName,
      description,
      arguments: [{ name: 'task', description: 'What to do with the skill', required: false }],
    }))
    return { prompts, ...rest }
  })

  server.setRequestHandler('prompts/get', async ({ params: { name, arguments: args = {} } }) => {
    const skill = await find(name)
    if (!skill) throw new ProtocolError(ProtocolErrorCode.InvalidParams, `Unknown prompt: ${name}`)
    const text = [skill.prompt, args.task].filter(Boolean).join('\n\n')
    return {
      description: skill.description,
      messages: [{ role: 'user' as const, content: { type: 'text' as const, text } }],
    }
  })

  const byUri = async (uri: string) => find(NAME_IN_URI.exec(uri)?.[1] ?? '')
  new SkillsExtension({
    source: {
      async list({ cursor }) {
        const { skills, ...rest } = await page(cursor)
        return { skills: skills.map(toEntry), ...rest }
      },
      async get(uri) {
        const skill = await byUri(uri)
        return skill && toEntry(skill)
      },
      async read(uri) {
        const skill = await byUri(uri)
        return skill && { text: toMarkdown(skill), mimeType: 'text/markdown' }
      },
    },
    onWarning: ({ path, message }) => context.deps.log.debug({ path }, message),
  }).attach(mcp)
}

const NAME_IN_URI = /^skill:\/\/([a-z0-9-]+)\/SKILL\.md$/

function toEntry(skill: SkillOutput & { truncated?: boolean }) {
  const { name, description, truncated } = skill
  const uri = `skill://${name}/SKILL.md`
  const bytes = Buffer.from(toMarkdown(skill))
  const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`
  return {
    uri,
    frontmatter: { name, description },
    // The list of a page with long prompts has only their beginnings.
    resources: truncated ? ('dynamic' as const) : [{ uri, digest, size: bytes.length }],
  }
}

/** Returns a skill as a SKILL.md file. A JSON text is a YAML text. */
const toMarkdown = ({ name, description, prompt }: SkillOutput): string =>
  `---\nname: ${name}\ndescription: ${JSON.stringify(description)}\n---\n\n${prompt}\n`
