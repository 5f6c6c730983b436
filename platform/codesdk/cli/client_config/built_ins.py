"""Settings that switch off a client's built-in tools for files, processes and the network.

Only calls through CodeSDK are governed: a built-in shell runs on the user's machine as the user. An allowlist is used where
the client has one; the others need the names of their tools, and `connect --check` reports one that is missing here.
"""

from __future__ import annotations

from codesdk.cli.client_config.settings import SERVER_NAME, ConfigEntry, Setting

_CLAUDE_TOOLS = (
    *("Agent", "Bash", "BashOutput", "CronCreate", "CronDelete", "CronList", "Edit", "EnterWorktree", "ExitWorktree"),
    *("Glob", "Grep", "KillShell", "LSP", "ListAgents", "Monitor", "MultiEdit", "NotebookEdit", "NotebookRead"),
    *("PowerShell", "PushNotification", "REPL", "Read", "RemoteTrigger", "ReportFindings", "ScheduleWakeup"),
    *("SendMessage", "Skill", "SlashCommand", "Task", "TaskOutput", "TaskStop", "TeamCreate", "TeamDelete", "WebFetch"),
    *("WebSearch", "Workflow", "Write"),
)
CLAUDE = ConfigEntry(
    # It ends a call after 300 s of silence otherwise, whatever the limit of the call.
    ("env", "CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT"),
    "0",
    (
        # Otherwise its model is asked before the bridge has started, which takes longer than 5 s on a busy machine.
        Setting(("env", "MCP_CONNECTION_NONBLOCKING"), "0"),
        Setting(("env", "MCP_CONNECT_TIMEOUT_MS"), "30000"),
        Setting(("permissions", "deny"), list(_CLAUDE_TOOLS), add=True),
        Setting(("permissions", "allow"), [f"mcp__{SERVER_NAME}"], add=True),
        Setting(("enabledMcpjsonServers",), [SERVER_NAME], add=True),
    ),
)
"""`.claude/settings.local.json`. A denied tool is not offered to the model; a deny of any file holds against every allow."""

_CODEX_FEATURES = (
    *("shell_tool", "unified_exec", "view_image", "multi_agent", "multi_agent_v2", "goals", "apps", "plugins"),
    *("image_generation", "skill_search", "tool_suggest", "sleep_tool", "hooks", "code_mode", "browser_use"),
    *("computer_use", "in_app_browser"),
)
CODEX = (
    Setting(("web_search",), "disabled"),
    *(Setting(("features", name), False) for name in _CODEX_FEATURES),
)
"""`config.toml`. What is left lists and reads MCP resources, keeps a plan and asks the user."""

GEMINI = (Setting(("tools", "core"), [f"mcp_{SERVER_NAME}_*"]),)
"""`settings.json`: only built-in tools of this list exist, and only tools of this list are allowed."""

OPENCODE = (Setting(("permission",), {"*": "deny", f"{SERVER_NAME}_*": "allow"}),)
"""`opencode.json`: a denied tool is not offered to the model. The last rule that matches wins, so the order matters."""

OPENCODE_OVERRIDES = tuple((of, "*", key) for of in ("agent", "mode") for key in ("permission", "tools"))
CODEX_OVERRIDES = tuple(("profiles", "*", key) for key in ("features", "tools", "web_search", "tools_view_image"))

_QWEN_TOOLS = (
    *("agent", "artifact", "create_sub_session", "cron_create", "cron_delete", "cron_list", "display_image", "edit"),
    *("enter_plan_mode", "enter_worktree", "exec", "exit_plan_mode", "exit_worktree", "glob", "grep_search"),
    *("image_gen", "list_agents", "list_directory", "loop_wakeup", "lsp", "monitor", "notebook_edit", "propose_goal"),
    *("read_file", "record_artifact", "record_source", "report_findings", "request_shutdown", "run_shell_command"),
    *("save_memory", "send_message", "skill", "task_create", "task_list", "task_stop", "task_update", "team_create"),
    *("team_delete", "team_plan_approval", "tool_call", "tool_search", "update_goal", "get_goal", "web_fetch"),
    *("web_search", "workflow", "write_file", "zoom_image"),
)
QWEN = (
    Setting(("tools", "core"), ["none"]),
    Setting(("permissions", "deny"), list(_QWEN_TOOLS), add=True),
    Setting(("memory", "enableManagedAutoMemory"), False),
    Setting(("memory", "enableManagedAutoDream"), False),
)
"""`settings.json`. The memory is kept by an agent of its own, which has tools for files and a shell. The list of core tools leaves some built-in ones. Behind `tool_search` the model would not see ours."""

KIMI = ConfigEntry(("tools", "enabled"), [f"mcp__{SERVER_NAME}__*"])
"""`config.toml`: the only tools that are offered and run."""

CURSOR = (
    "Cursor keeps its own shell, file and web tools; no setting removes all of them. Deny Shell(*), Read(**) and Write(**) "
    "in ~/.cursor/cli-config.json for its command line, and run it where nothing is worth protecting."
)
VSCODE = (
    "VS Code keeps its own terminal, file and web tools. Choose only codesdk's in the tools picker of its chat, or use a "
    "custom agent (.github/agents/codesdk.agent.md) with `tools: ['codesdk/*']`."
)
GENERIC = (
    "The client keeps its own tools, if it has any: nothing that we write switches them off. Remove its shell, file and "
    "web tools in its own settings."
)

HARMLESS = frozenset(
    {
        *("AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "ListMcpResourcesTool", "ReadMcpResourceTool"),
        *("ReadMcpResourceDirTool", "DeferredToolPlaceholder", "WaitForMcpServers"),
        *("TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "TodoWrite", "ToolSearch", "StructuredOutput"),
        *("list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource", "request_user_input"),
        *("update_plan", "ask_user_question", "todo_write", "question", "todowrite", "todoread", "invalid"),
        *("structured_output", "ask_user", "write_todos"),
    }
)
"""Built-in tools, of any client, that may stay: they only ask the user, keep a list, or use an MCP server's resources."""
