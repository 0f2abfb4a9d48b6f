import { builder } from '../graphql/builder.ts'
import { inputFromZod } from '../graphql/inputs.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
// Imported because the enum of roles is registered there.
import '../organizations/graphql.ts'
import { profile } from './router.ts'
import * as schema from './schema.ts'

objectFromZod('Membership', schema.Membership, 'An organization that you belong to')
objectFromZod('Notifications', schema.Notifications, 'Your mail notifications')
const Profile = objectFromZod('Profile', schema.Profile, 'You')
inputFromZod(
  'NotificationsInput',
  schema.NotificationsChange,
  'Changes of mail notifications; absent ones are unchanged',
)
const UpdateInput = inputFromZod('UpdateProfileInput', schema.UpdateProfile, 'Changes of your profile')

builder.queryField('profile', (t) =>
  t.field({
    ...procedureExtensions(profile.get),
    type: Profile,
    resolve: async (_, __, { caller }) => (await caller.profile.get()).profile,
  }),
)

builder.mutationField('updateProfile', (t) =>
  t.field({
    ...procedureExtensions(profile.update),
    type: Profile,
    args: { input: t.arg({ type: UpdateInput, required: true }) },
    resolve: async (_, { input }, { caller }) => (await caller.profile.update(input)).profile,
  }),
)
