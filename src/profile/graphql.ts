import type { z } from 'zod'
import { builder } from '../graphql/builder.ts'
import { inputFromZod } from '../graphql/inputs.ts'
import { shows } from '../graphql/procedures.ts'
import { Role } from '../organizations/graphql.ts'
import { profile } from './router.ts'
import * as schema from './schema.ts'

type ProfileData = z.output<typeof schema.Profile>

const Membership = builder.objectRef<ProfileData['organization']>('Membership').implement({
  description: 'An organization that you belong to',
  fields: (t) => ({
    id: t.exposeID('id', { description: 'The organization' }),
    name: t.exposeString('name', { description: 'What it is called' }),
    slug: t.exposeString('slug', { description: 'Its name in addresses' }),
    role: t.expose('role', { type: Role, description: 'Your role in it' }),
  }),
})

const Profile = builder.objectRef<ProfileData>('Profile').implement({
  description: 'You',
  fields: (t) => ({
    id: t.exposeID('id', { description: 'Your id' }),
    email: t.exposeString('email', { description: 'Your e-mail address' }),
    name: t.exposeString('name', { description: 'Your name' }),
    image: t.exposeString('image', { nullable: true, description: 'Address of a picture' }),
    organization: t.expose('organization', { type: Membership, description: 'The one that the token is of' }),
    organizations: t.expose('organizations', { type: [Membership], description: 'All of them' }),
  }),
})

const UpdateInput = inputFromZod('UpdateProfileInput', schema.UpdateProfile, 'What to change of your profile')

builder.queryField('profile', (t) =>
  t.field({
    ...shows(profile.get),
    type: Profile,
    resolve: async (_, __, { caller }) => (await caller.profile.get()).profile,
  }),
)

builder.mutationField('updateProfile', (t) =>
  t.field({
    ...shows(profile.update),
    type: Profile,
    args: { input: t.arg({ type: UpdateInput, required: true }) },
    resolve: async (_, { input }, { caller }) => (await caller.profile.update(input)).profile,
  }),
)
