/** A local cloud that runs. */
export interface Cloud {
  /** URL of its API. */
  readonly url: string;
  /** Its API key. Nothing outside of this machine accepts it. */
  readonly apiKey: string;
  /** Variables with which the SDKs of E2B use it. They are in process.env until close. */
  readonly env: Readonly<Record<string, string>>;
  /** Ends the cloud and its sandboxes, and sets the variables in process.env as they were before. */
  close(): Promise<void>;
  /** Is close, for "await using". It needs the library esnext.disposable of TypeScript. */
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Runs a cloud of sandboxes on this machine, and lets the SDKs of E2B use it.
 *
 * The variables of the SDKs, such as E2B_API_KEY, lead to this cloud until its close. Without close the cloud
 * ends with this process; if the process is killed, five minutes after the last sandbox.
 *
 * @param args further flags of "e2bctl local up", such as "--memory" and "4GiB"
 * @throws Error with the text of e2bctl, if the cloud does not start
 */
export function localCloud(args?: readonly string[]): Promise<Cloud>;

/**
 * Returns the path of the program e2bctl.
 *
 * @throws Error if there is none for this platform, or if its package is not installed
 */
export function binary(): string;
