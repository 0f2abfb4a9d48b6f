import { type Attributes, type Context, ROOT_CONTEXT, type Span, SpanKind, trace } from '@opentelemetry/api'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http'
import { resourceFromAttributes } from '@opentelemetry/resources'
import { BatchSpanProcessor, type SpanExporter, TracerProvider } from '@opentelemetry/sdk-trace'
import type { TextModel } from '../executions/engine/models/text-model.ts'
import type { Tool } from '../executions/engine/run/tools.ts'
import { type ProxyFor, proxyVariables } from '../lib/net/proxies.ts'
import { createObserver, failed, mark, toMessages, watchStream } from './spans.ts'
import { silent, type Telemetry } from './telemetry.ts'

/** Maximum wait for a collector, also at shutdown (ms). */
const PATIENCE = 3_000

/** OpenTelemetry's names of providers, where they differ. */
const PROVIDERS: Record<string, string> = { google: 'gcp.gemini' }

function attributesOf(model: string): Attributes {
  const [provider = '', id] = [model.split('/', 1)[0], model.slice(model.indexOf('/') + 1)]
  return { 'gen_ai.provider.name': PROVIDERS[provider] ?? provider, 'gen_ai.request.model': id }
}

/** `ExportResultCode.SUCCESS` of OpenTelemetry. */
const SUCCESS = 0

/** Drops spans while the service is paused, because keeping them would be unbounded. */
const unlessPaused = (exporter: OTLPTraceExporter, isPaused: () => boolean): SpanExporter => ({
  export: (spans, done) => (isPaused() ? done({ code: SUCCESS }) : exporter.export(spans, done)),
  shutdown: () => exporter.shutdown(),
  forceFlush: () => exporter.forceFlush(),
})

/**
 * Creates traces by OpenTelemetry's conventions for generative AI, sent to a collector over OTLP/HTTP: a run
 * (`invoke_agent`) with its model requests (`chat`), tool calls (`execute_tool`) and delegates. Without `withContent`
 * they contain no prompts, answers, tool inputs and results; error messages, which may repeat them, are never included.
 * While `isPaused`, no span is sent (contract-2.md section 8.7).
 */
export function createTraces(
  endpoint: string,
  { withContent, proxyFor, isPaused }: { withContent: boolean; proxyFor: ProxyFor; isPaused: () => boolean },
): { telemetry: Telemetry; stop: () => Promise<void> } {
  const url = `${endpoint.replace(/\/$/, '')}/v1/traces`
  const httpAgentOptions = { keepAlive: true, proxyEnv: proxyVariables(proxyFor, url) }
  const exporter = new OTLPTraceExporter({ url, timeoutMillis: PATIENCE, httpAgentOptions })
  const provider = new TracerProvider({
    resource: resourceFromAttributes({ 'service.name': process.env.OTEL_SERVICE_NAME || 'muster' }),
    spanProcessors: [
      new BatchSpanProcessor({ exporter: unlessPaused(exporter, isPaused), exportTimeoutMillis: PATIENCE }),
    ],
  })
  const tracer = provider.getTracer('muster')
  /** Spans of the runs in this process. */
  const runs = new Map<string, Span>()

  const start = (name: string, parent: Span | undefined, kind: SpanKind, attributes: Attributes): Span => {
    const context: Context = parent ? trace.setSpan(ROOT_CONTEXT, parent) : ROOT_CONTEXT
    return tracer.startSpan(name, { kind, attributes }, context)
  }

  function watchModel(model: TextModel, run: Span, attributes: Attributes): TextModel {
    return {
      provider: model.provider,
      modelId: model.modelId,
      async doStream(options) {
        const span = start(`chat ${model.modelId}`, run, SpanKind.CLIENT, {
          'gen_ai.operation.name': 'chat',
          ...attributes,
        })
        try {
          if (withContent) span.setAttribute('gen_ai.input.messages', toMessages(options.prompt))
          const { stream } = await model.doStream(options)
          return { stream: watchStream(stream, createObserver(span, withContent), span) }
        } catch (error) {
          throw failed(span, error)
        }
      },
    }
  }

  function watchTool(tool: Tool, run: Span): Tool {
    return {
      ...tool,
      async call(input, call) {
        const span = start(`execute_tool ${tool.name}`, run, SpanKind.INTERNAL, {
          'gen_ai.operation.name': 'execute_tool',
          'gen_ai.tool.name': tool.name,
          'gen_ai.tool.type': 'function',
          'gen_ai.tool.call.id': call.toolUseId,
        })
        // A tool that ignores the signal is no longer awaited.
        const abandon = () => void failed(span, call.signal.reason)
        call.signal.addEventListener('abort', abandon)
        try {
          if (withContent) span.setAttribute('gen_ai.tool.call.arguments', JSON.stringify(input))
          const result = await tool.call(input, call)
          if (withContent) span.setAttribute('gen_ai.tool.call.result', result.content)
          if (result.isError) mark(span, 'tool_error')
          span.end()
          return result
        } catch (error) {
          throw failed(span, error)
        } finally {
          call.signal.removeEventListener('abort', abandon)
        }
      },
    }
  }

  return {
    telemetry: {
      ...silent,
      begin(row, agent, { input }) {
        const asked = attributesOf(input.asking.current().id)
        const run = start(`invoke_agent ${agent.name}`, runs.get(row.parentExecutionId ?? ''), SpanKind.INTERNAL, {
          'gen_ai.operation.name': 'invoke_agent',
          'gen_ai.agent.id': agent.id,
          'gen_ai.agent.name': agent.name,
          'gen_ai.conversation.id': row.sessionId,
          'muster.execution.id': row.id,
          'muster.execution.attempt': row.attempt,
          ...asked,
        })
        runs.get(row.id)?.end()
        runs.set(row.id, run)
        const tools = input.tools.map((tool) => watchTool(tool, run))
        return { ...input, watch: (model, id) => watchModel(model, run, attributesOf(id)), tools }
      },
      ended({ id, status, inputTokens, outputTokens }) {
        const run = runs.get(id)
        run?.setAttributes({
          'muster.execution.status': status,
          'gen_ai.usage.input_tokens': inputTokens,
          'gen_ai.usage.output_tokens': outputTokens,
        })
        if (run && status !== 'completed') mark(run, status)
      },
      left(id) {
        runs.get(id)?.end()
        runs.delete(id)
      },
    },
    stop: () => provider.shutdown(),
  }
}
