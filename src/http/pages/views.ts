import { escapeHtml } from '../welcome.ts'

/** Data of a page. */
export type View = {
  /** The path of PUBLIC_URL, without a slash at its end. */
  base: string
  /** The path after signing in. */
  returnTo: string
  /** Reason for a failed sign-in with the identity provider, with the remedy. */
  problem: string | null
  /** Name of the identity provider; null without one. */
  provider: string | null
}

const page = (
  { base, returnTo, problem }: View,
  name: string,
  title: string,
  content: string,
): string => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<meta name="color-scheme" content="light dark">
<title>${title} · Muster</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${escapeHtml(base)}/app/pages/pages.css">
<script type="module" src="${escapeHtml(base)}/app/pages/pages.js"></script>
</head>
<body data-page="${name}" data-base="${escapeHtml(base)}" data-return-to="${escapeHtml(returnTo)}">
<main>
<p class="brand">Muster</p>
<h1>${title}</h1>
<noscript><p class="alert">This page needs JavaScript.</p></noscript>
<p class="alert" role="alert" id="problem"${problem ? '' : ' hidden'}>${escapeHtml(problem ?? '')}</p>
<p class="done" role="status" id="done" hidden></p>
${content}
</main>
</body>
</html>
`

const newPassword = (label: string) => `<form id="password-form" novalidate hidden>
<label for="new">${label}</label>
<input id="new" name="new" type="password" autocomplete="new-password" aria-describedby="rules" required>
<p class="hint" id="rules">At least 12 characters. A sentence of your own is good.</p>
<button type="submit">Set password</button>
</form>`

/** Links to the identity provider, which returns to a path. */
const providerButton = ({ base, provider }: View, returnTo: string): string =>
  provider === null
    ? ''
    : `<p class="or">or</p>
<a class="button plain" id="provider" href="${escapeHtml(`${base}/api/auth/oidc/start?returnTo=${encodeURIComponent(returnTo)}`)}">Sign in with ${escapeHtml(provider)}</a>
`

/** Renders `/app/sign-in`. */
export const signIn = (view: View): string =>
  page(
    view,
    'sign-in',
    'Sign in',
    `<form id="sign-in-form" novalidate>
<label for="email">E-mail address</label>
<input id="email" name="email" type="email" autocomplete="username" required autofocus>
<label for="current">Password</label>
<input id="current" name="password" type="password" autocomplete="current-password" required>
<button type="submit">Sign in</button>
</form>
${providerButton(view, view.returnTo)}<p class="links"><a href="${escapeHtml(view.base)}/app/forgot">Forgot your password?</a></p>`,
  )

/** Renders `/app/welcome#<code>`. Only its button uses the code up. */
export const welcome = (view: View): string =>
  page(
    view,
    'link',
    'Welcome',
    `<div id="link">
<p>This link signs you in once, on this browser.</p>
<button type="button" id="use-link">Sign in</button>
<p class="links"><a href="${escapeHtml(view.base)}/app/sign-in">Sign in with a password</a></p>
</div>
${newPassword('Choose a password')}
<p class="links" id="skip" hidden><a href="${escapeHtml(view.returnTo)}">Continue without a password</a></p>`,
  )

/** Renders `/app/accept#<code>`. Only its button uses the code up. */
export const accept = (view: View): string =>
  page(
    view,
    'accept',
    'Invitation',
    `<div id="offer" hidden>
<p id="offer-text"></p>
<form id="accept-form" novalidate>
<div id="new-account"><label for="name">Your name</label>
<input id="name" name="name" autocomplete="name" maxlength="200">
<label for="new">Choose a password</label>
<input id="new" name="password" type="password" autocomplete="new-password" aria-describedby="rules">
<p class="hint" id="rules">At least 12 characters. Without one, you sign in by a link or your identity provider.</p></div>
<button type="submit">Accept the invitation</button>
</form>
<div id="by-provider" hidden>${providerButton(view, `${view.base}/app`)}</div>
<p class="links" id="sign-in-first" hidden><a id="sign-in-link" href="${escapeHtml(view.base)}/app/sign-in?returnTo=${escapeHtml(encodeURIComponent(`${view.base}/app/accept`))}">Sign in as the invited address first</a></p>
</div>
<p class="links" id="open" hidden><a href="${escapeHtml(view.base)}/app">Open Muster</a></p>`,
  )

/** Renders `/app/forgot`. */
export const forgot = (view: View): string =>
  page(
    view,
    'forgot',
    'Forgot your password?',
    `<form id="forgot-form" novalidate>
<label for="email">E-mail address</label>
<input id="email" name="email" type="email" autocomplete="username" required autofocus>
<p class="hint">You get a link to a new password by mail. A service without mail asks its operator to hand it to you.</p>
<button type="submit">Ask for a link</button>
</form>
<p class="links"><a href="${escapeHtml(view.base)}/app/sign-in">Back to signing in</a></p>`,
  )

/** Renders `/app/password#<code>`, the link of a forgotten password. */
export const password = (view: View): string =>
  page(
    view,
    'link',
    'Set a new password',
    `<div id="link">
<p>This link removes your old password and signs you in. Other browsers are signed out.</p>
<button type="button" id="use-link">Continue</button>
</div>
${newPassword('New password')}`,
  )

/** Renders `/app/account`. */
export const account = (view: View): string =>
  page(
    view,
    'account',
    'Your account',
    `<div id="account" hidden>
<dl id="user"></dl>
<p class="links"><a href="${escapeHtml(view.base)}/app">Open Muster</a>
<button type="button" class="plain" id="sign-out">Sign out</button></p>
<h2>Browsers</h2>
<p class="hint">You are signed in here:</p>
<ul id="sessions"></ul>
<h2>Password</h2>
<form id="change-form" novalidate>
<input type="hidden" name="username" autocomplete="username">
<div id="current-field"><label for="current">Present password</label>
<input id="current" name="current" type="password" autocomplete="current-password"></div>
<label for="new">New password</label>
<input id="new" name="new" type="password" autocomplete="new-password" aria-describedby="rules" required>
<p class="hint" id="rules">At least 12 characters. Other browsers are signed out.</p>
<button type="submit">Change password</button>
</form>
</div>`,
  )
