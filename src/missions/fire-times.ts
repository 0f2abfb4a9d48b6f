import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import type { Deps } from '../deps.ts'
import { find } from './rows.ts'
import { changeSchedule, checkSchedule, NO_SCHEDULE, nextFires } from './schedule.ts'
import type { NextRuns, PreviewSchedule } from './schema.ts'

// The fire times of missions and of schedules that are not saved yet.

/** GET /missions/{id}/next: the upcoming fire times; of a continuous mission the next one, if known. */
export async function next(actor: Actor, deps: Deps, { id, count = 10 }: z.output<typeof NextRuns>) {
  const mission = await find(actor, deps, id)
  const { status, scheduleType, nextRunAt } = mission
  const known = nextRunAt ? [nextRunAt] : []
  const left = mission.maxRuns === null ? count : Math.min(count, Math.max(0, mission.maxRuns - mission.runCount))
  const fires = scheduleType === 'continuous' ? known : nextFires(mission, deps.clock.now(), left)
  const isOver = status === 'paused' || status === 'completed'
  return { next: isOver ? [] : fires.map((fire) => fire.toISOString()) }
}

const PREVIEWED = 10

/** POST /missions/preview: the first fire times of a schedule that is set now. Throws 400 for an invalid schedule. */
export function preview({ clock }: Pick<Deps, 'clock'>, input: z.output<typeof PreviewSchedule>) {
  const now = clock.now()
  const schedule = changeSchedule(NO_SCHEDULE, input.schedule)
  checkSchedule(schedule, now)
  const count = Math.min(PREVIEWED, schedule.maxRuns ?? PREVIEWED)
  const fires = schedule.scheduleType === 'continuous' ? [now] : nextFires(schedule, now, count)
  return { next: fires.map((fire) => fire.toISOString()) }
}
