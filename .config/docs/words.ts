import type { StopReason, WarningCode } from '../../src/wire.ts'

/** Describes why runs end. */
export const STOP_REASON_HELP: Record<StopReason, string> = {
  end_turn: 'Completed with a whole answer.',
  max_tokens: 'Completed with an answer that the length limit cut. It has the warning `cut_off`.',
  content_filter: "Completed with an answer that the provider's filter cut. It has the warning `cut_off`.",
  max_turns: 'Completed with the text of the last allowed step. It has the warning `cut_off`.',
  refusal: 'Completed with the text in which the model refused, or failed if there is none.',
  client_tool: 'Reserved.',
  budget: 'Reserved.',
  timeout: 'Failed: it exceeded a time limit.',
  cancelled: 'Was cancelled.',
  interrupted: 'Failed: its process ended, and the run could not resume.',
  error: 'Failed. `errorCode` and `error` say why.',
}

/** Describes the warnings of runs. */
export const WARNING_HELP: Record<WarningCode, string> = {
  mcp_unreachable: 'An MCP server cannot be used. The run has none of its tools.',
  tool_missing: 'A tool in `allowedTools` does not exist.',
  attachment_not_read: 'The model does not read an attached file. It gets the name of the file.',
  model_fallback: 'Another model of `fallbackModels` answered.',
  setting_ignored: 'The provider does not support a setting.',
  cut_off: 'The answer is incomplete; see the stop reason or the text of the warning.',
  secret_not_allowed: 'A secret may not be sent to a host, so nothing was sent.',
  history_cut: 'Earlier turns were left out, because they could not be summarized or a content filter blocked them.',
}
