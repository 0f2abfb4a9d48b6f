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

/**
 * Writes a card that clients of both versions understand: it has the fields of 1.0, and the fields of 0.3 that have
 * other names.
 */
export function toJson(card: AgentCard): object {
  const current = AgentCard.toJSON(card) as {
    securitySchemes: { bearer: object }
    capabilities: object
    skills: object[]
  }
  return {
    ...current,
    protocolVersion: '0.3.0',
    url: card.supportedInterfaces[0]?.url,
    preferredTransport: 'JSONRPC',
    capabilities: { ...current.capabilities, stateTransitionHistory: false },
    securitySchemes: { bearer: { ...current.securitySchemes.bearer, type: 'http', scheme: 'bearer' } },
    security: [{ bearer: [] }],
    skills: current.skills.map((skill) => ({ tags: [], ...skill })),
  }
}
