import type { ServerEventBus } from '@modelcontextprotocol/server'
import type { Actor } from '../../auth/actor.ts'
import type { Deps } from '../../deps.ts'

/** Changes within this time (ms) are one notice. */
const PAUSE = 100

/** Tells subscribers that skills or files of their organization have changed, on whichever server. */
export function createNotices({ bus }: Deps, { organizationId }: Actor): ServerEventBus {
  return {
    // Changes are published by the services, never by a request of this protocol.
    publish() {},
    subscribe(listener) {
      const timers = new Set<NodeJS.Timeout>()
      const on = (channel: 'skill' | 'file', events: readonly Parameters<typeof listener>[0][]) => {
        let waiting = false
        return bus.subscribe(channel, (ids) => {
          if (waiting || (ids && !ids.includes(organizationId))) return
          waiting = true
          const timer = setTimeout(() => {
            waiting = false
            timers.delete(timer)
            for (const event of events) listener(event)
          }, PAUSE)
          timers.add(timer)
        })
      }
      const stops = [
        on('skill', [{ kind: 'prompts_list_changed' }, { kind: 'resources_list_changed' }]),
        on('file', [{ kind: 'resources_list_changed' }]),
      ]
      return () => {
        for (const stop of stops) stop()
        for (const timer of timers) clearTimeout(timer)
      }
    },
  }
}
