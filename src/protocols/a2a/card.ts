import type { IncomingHttpHeaders } from 'node:http'
import { AgentCard } from '@a2a-js/sdk'
import type { CachedAgent } from '../../agents/agent-cache.ts'
import { publicAddress, type Settings } from '../../settings.ts'

// The card of an agent (protocols.md section 5).

const VERSIONS = ['1.0', '0.3'] as const

const MODES = { input: ['text/plain', 'application/json'], output: ['text/plain'] }

/** Returns the card of an agent, for this revision of the protocol. */
export function cardOf(settings: Settings, agent: CachedAgent): AgentCard {
  const url = `${publicAddress(settings)}/a2a/agents/${agent.id}`
  const description = [agent.role, agent.description].filter(Boolean).join('. ') || agent.name
  const tags = (agent.tags as string[] | null) ?? []
  return {
    name: agent.name,
    description,
    supportedInterfaces: VERSIONS.map((protocolVersion) => ({
      url,
      protocolBinding: 'JSONRPC',
      protocolVersion,
      tenant: '',
    })),
    version: String(agent.version),
    capabilities: { streaming: true, pushNotifications: true, extendedAgentCard: false, extensions: [] },
    securitySchemes: {
      bearer: {
        scheme: {
          $case: 'httpAuthSecurityScheme',
          value: { scheme: 'Bearer', bearerFormat: '', description: 'A personal access token' },
        },
      },
    },
    securityRequirements: [{ schemes: { bearer: { list: [] } } }],
    defaultInputModes: MODES.input,
    defaultOutputModes: MODES.output,
    skills: [
      {
        id: 'ask',
        name: agent.name,
        description,
        tags,
        examples: [],
        securityRequirements: [],
        inputModes: [],
        outputModes: [],
      },
    ],
    provider: undefined,
    signatures: [],
  }
}

/** Libraries for Java, whose version 1.0 refuses a scheme with the fields of 0.3. */
const OF_JAVA = /^(Java-http-client|Vert\.x|okhttp|Dalvik)\b/
/** The library for Go, which reads the scopes of a requirement as a list or null, and refuses the object of 1.0. */
const OF_GO = /^Go-http-client\b/

/**
 * Writes a card that clients of both versions understand: it has the fields of 1.0, and the fields of 0.3 that have
 * other names. Some libraries refuse one of these forms: `headers` are those of the client's request.
 */
export function toJson(card: AgentCard, headers: IncomingHttpHeaders): object {
  const current = AgentCard.toJSON(card) as {
    securitySchemes: { bearer: object }
    capabilities: object
    skills: object[]
  }
  const userAgent = headers['user-agent'] ?? ''
  const version = headers['a2a-version'] ?? (OF_JAVA.test(userAgent) ? '1.0' : '0.3')
  return {
    ...current,
    protocolVersion: '0.3.0',
    url: card.supportedInterfaces[0]?.url,
    preferredTransport: 'JSONRPC',
    capabilities: { ...current.capabilities, stateTransitionHistory: false },
    securitySchemes: {
      bearer: { ...current.securitySchemes.bearer, ...(version === '0.3' && { type: 'http', scheme: 'bearer' }) },
    },
    ...(OF_GO.test(userAgent) && { securityRequirements: [{ schemes: { bearer: null } }] }),
    security: [{ bearer: [] }],
    skills: current.skills.map((skill) => ({ tags: [], ...skill })),
  }
}
