import { builder } from '../graphql/builder.ts'
import { argsFromZod, enumFromZod, parseArgs } from '../graphql/inputs.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { shows } from '../graphql/procedures.ts'
import { usage } from './router.ts'
import * as schema from './schema.ts'

enumFromZod('UsagePeriod', schema.Period, 'What is added up')
objectFromZod('UsageTotals', schema.Totals, 'All of it')
objectFromZod('AgentUsage', schema.AgentUsage, 'What the runs of one agent used')
objectFromZod('ModelUsage', schema.ModelUsage, 'What the runs on one model used')
objectFromZod('UsageEntry', schema.UsageEntry, 'What the runs of a period used')

const Report = objectFromZod('UsageReport', schema.UsageResponse.omit({ success: true }), 'What the runs used')

builder.queryField('usage', (t) =>
  t.field({
    ...shows(usage.get, { cost: 50 }),
    type: Report,
    args: argsFromZod(schema.GetUsage),
    resolve: (_, args, { caller }) => caller.usage.get(parseArgs(schema.GetUsage, args)),
  }),
)
