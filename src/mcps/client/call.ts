import type { Client } from '@modelcontextprotocol/client'
import type { McpTool } from './listing.ts'
import { callAsTask } from './tasks.ts'
import { requestWithSignal } from './transport.ts'

type Call = {
  name: string
  input: unknown
  /** Schema of the input, which may demand that the request repeats properties in headers (2026-07-28). */
  inputSchema?: McpTool['inputSchema'] | undefined
  /** Whether the tool only runs as a task. */
  isTask?: boolean | undefined
  onProgress: (() => void) | undefined
}

/** Calls a tool by its name on the server. */
export async function callTool(
  client: Client,
  { name, input, inputSchema, isTask, onProgress }: Call,
  signal: AbortSignal,
) {
  const params = { name, arguments: (input ?? {}) as Record<string, unknown> }
  const request = { method: 'tools/call', params } as const
  const onprogress = () => onProgress?.()
  if (isTask && client.getProtocolEra() !== 'modern') return callAsTask(client, params, onprogress, signal)
  const hasHeaders = inputSchema && client.getProtocolEra() === 'modern' && HEADER.test(JSON.stringify(inputSchema))
  return requestWithSignal(signal, (given) => {
    const options = { ...given, onprogress }
    if (!hasHeaders) return client.request(request, options)
    // Without the schema of the output, because the SDK refuses results that do not fit it.
    return client.callTool(params, {
      ...options,
      toolDefinition: { name, inputSchema: { ...inputSchema, type: 'object' } },
    })
  })
}

/** Keyword for properties of an input that a request repeats in headers. */
const HEADER = /"x-mcp-header":/
