"""Sign-in by OpenID Connect: authorization code with PKCE, sign-out, back-channel logout."""
