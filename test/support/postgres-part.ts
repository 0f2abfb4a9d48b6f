import { beforeEach, expect } from 'vitest'

/**
 * Files of which some tests are selected on PostgreSQL, each with the number of tests that it selects at least, so
 * that no test is left out because its title has changed. `test/security/isolation.test.ts` has most of their other
 * statements: it calls each procedure with the caller's own ids over at least one API.
 */
const SELECTED: Readonly<Record<string, number>> = {
  'rest/agents': 39,
  'rest/chats': 28,
  'rest/mission-changes': 3,
  'rest/mission-runs': 5,
  'rest/missions': 13,
  'rest/spaces': 25,
  'rest/task-runs': 7,
  'rest/tasks': 29,
  'people/sessions': 17,
  'people/sign-in-provider': 39,
}

/** Titles, with those of their groups, of tests whose database behavior may differ. */
const MAY_DIFFER = /concurrent|search|sort|order|filter|count|total|page|cursor|hidden|visib|private|statement|race/i

type Task = { name: string; suite?: Task | undefined; tasks?: readonly Task[] }

const nameOf = (task: Task): string => (task.suite ? `${nameOf(task.suite)} ${task.name}` : task.name)
const isSelected = (task: Task): boolean => MAY_DIFFER.test(nameOf(task))
const testsOf = (task: Task): readonly Task[] => (task.tasks ? task.tasks.flatMap(testsOf) : [task])

// Skips the other tests of these files, which NIGHTLY=1 runs.
beforeEach(({ task, skip }) => {
  const { file } = task
  const minimum = SELECTED[file.filepath.replace(/^.*\/test\/|\.test\.ts$/g, '')]
  if (minimum === undefined || process.env.NIGHTLY === '1') return
  const selected = testsOf(file as Task).filter(isSelected)
  expect(selected.length, 'Number of selected tests: has a title changed?').toBeGreaterThanOrEqual(minimum)
  if (!isSelected(task as Task)) skip()
})
