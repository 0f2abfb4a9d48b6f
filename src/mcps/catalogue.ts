import type { z } from 'zod'
import type { Settings } from '../settings.ts'
import type { McpType } from './schema.ts'

type Type = z.output<typeof McpType>

/** Well-known remote servers with the addresses that their vendors document (contract-2.md section 1.16). */
const SHIPPED: readonly Type[] = [
  { mcpType: 'asana', name: 'Asana', url: 'https://mcp.asana.com/v2/mcp', auth: 'oauth' },
  {
    mcpType: 'atlassian',
    name: 'Atlassian (Jira, Confluence)',
    url: 'https://mcp.atlassian.com/v1/mcp',
    auth: 'oauth',
  },
  { mcpType: 'cloudflare-docs', name: 'Cloudflare Docs', url: 'https://docs.mcp.cloudflare.com/mcp', auth: 'none' },
  { mcpType: 'context7', name: 'Context7', url: 'https://mcp.context7.com/mcp', auth: 'bearer' },
  { mcpType: 'deepwiki', name: 'DeepWiki', url: 'https://mcp.deepwiki.com/mcp', auth: 'none' },
  { mcpType: 'github', name: 'GitHub', url: 'https://api.githubcopilot.com/mcp/', auth: 'bearer' },
  { mcpType: 'huggingface', name: 'Hugging Face', url: 'https://huggingface.co/mcp', auth: 'bearer' },
  { mcpType: 'linear', name: 'Linear', url: 'https://mcp.linear.app/mcp', auth: 'bearer' },
  { mcpType: 'microsoft-learn', name: 'Microsoft Learn', url: 'https://learn.microsoft.com/api/mcp', auth: 'none' },
  { mcpType: 'notion', name: 'Notion', url: 'https://mcp.notion.com/mcp', auth: 'oauth' },
  { mcpType: 'sentry', name: 'Sentry', url: 'https://mcp.sentry.dev/mcp', auth: 'oauth' },
  { mcpType: 'stripe', name: 'Stripe', url: 'https://mcp.stripe.com', auth: 'bearer' },
]

/** Lists the known types by name: the shipped ones and those of MCP_CATALOGUE, which take precedence. */
export function listTypes({ MCP_CATALOGUE: own }: Pick<Settings, 'MCP_CATALOGUE'>): Type[] {
  const types = new Map([...SHIPPED, ...own].map((type) => [type.mcpType, type]))
  return [...types.values()].sort((a, b) => (a.mcpType < b.mcpType ? -1 : 1))
}

/** Returns a known type, or null for any other name. */
export const findType = (settings: Pick<Settings, 'MCP_CATALOGUE'>, mcpType: string): Type | null =>
  listTypes(settings).find((type) => type.mcpType === mcpType) ?? null
