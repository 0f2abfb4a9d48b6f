import type { TaskPushNotificationConfig } from '@a2a-js/sdk'
import { V03PushNotificationSerializer } from '@a2a-js/sdk/compat/v0_3/server'
import { RequestMalformedError } from '@a2a-js/sdk/errors'
import { V1PushNotificationSerializer } from '@a2a-js/sdk/server'
import type { Push, PushBody } from '../../webhooks/push.ts'
import { CreateWebhook } from '../../webhooks/schema.ts'
import type { Run } from '../shared/wait.ts'
import { toTask } from './tasks.ts'

// Push notifications are webhooks of one run (src/webhooks/push.ts): the task as it was at each change of its state.

const MAX_ID = 255
/** Visible characters and spaces, as headers allow them. */
const HEADER = /^[\x21-\x7e](?:[\x20-\x7e]{0,3998}[\x21-\x7e])?$/
const SCHEME = /^[\w!#$%&'*+.^`|~-]{1,100}$/

/** Returns the id of a configuration. The only one of a task may omit it. */
export const idOf = ({ id }: { id: string }, taskId: string): string => id || taskId

/** Reads a client's configuration, for bodies of its version of the protocol. Throws RequestMalformedError. */
export function toPush(config: TaskPushNotificationConfig, taskId: string, version: string, contextId: string): Push {
  const id = idOf(config, taskId)
  const url = CreateWebhook.shape.url.safeParse(config.url)
  if (id.length > MAX_ID)
    throw new RequestMalformedError(`The id of a push notification has at most ${MAX_ID} characters`)
  if (!url.success)
    throw new RequestMalformedError('Invalid url. Must be an http or https address, without user and password')
  const { scheme = '', credentials = '' } = config.authentication ?? {}
  for (const [name, value] of Object.entries({ token: config.token, credentials }))
    if (value && !HEADER.test(value)) throw new RequestMalformedError(`Invalid ${name}. Must be text for a header`)
  if (scheme && !SCHEME.test(scheme))
    throw new RequestMalformedError('Invalid scheme. Must be an HTTP authentication scheme')
  return {
    id,
    url: url.data,
    headers: {
      ...(config.token && { 'x-a2a-notification-token': config.token }),
      ...(scheme && credentials && { authorization: `${scheme} ${credentials}` }),
    },
    protocol: { version, contextId, token: config.token ?? '', scheme },
  }
}

/** Returns a configuration as its client gets it. The credentials are a secret and do not come out. */
export const toConfig = ({ id, url, protocol }: Push, taskId: string): TaskPushNotificationConfig => ({
  tenant: '',
  id,
  taskId,
  url,
  token: protocol.token ?? '',
  authentication: protocol.scheme ? { scheme: protocol.scheme, credentials: '' } : undefined,
})

/** Writes the task as it was at an event of its run. */
export const bodyOf: PushBody = async (settings, event, { version, contextId = '' }) => {
  const run = { ...(event.data as unknown as Run), updatedAt: event.timestamp }
  const task = toTask(run, { contextId, settings, historyLength: 0 })
  const serializer = version === '0.3' ? new V03PushNotificationSerializer() : new V1PushNotificationSerializer()
  return serializer.serialize({ payload: { $case: 'task', value: task } }, task)
}
