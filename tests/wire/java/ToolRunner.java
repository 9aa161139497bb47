import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs many command lines of Kafka's tools in one JVM, as each would run in its own.
 *
 * <p>A request on standard input is the number of words (the class and its arguments), each with
 * its length, and what the tool is to read, with its length. The answer is the exit status, and what
 * went to standard output and to standard error, each with its length. Lengths are four bytes. A
 * status of -1 says that the process ends with this tool: its own exit status is the tool's.
 */
public class ToolRunner {
    /** Where a tool would have ended the process. */
    private static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    private static final int PROCESS_ENDS = -1;
    private static DataOutputStream answers;
    private static volatile boolean isAsked;
    private static volatile ByteArrayOutputStream said;
    private static volatile ByteArrayOutputStream complained;
    private static volatile OutputStream out;
    private static volatile OutputStream err;
    private static volatile InputStream in;
    private static volatile Integer status;
    /** What a tool would do when its process ends: the console producer sends its last records. */
    private static final List<Runnable> hooks = new CopyOnWriteArrayList<>();

    public static void main(String[] args) throws Exception {
        DataInputStream requests = new DataInputStream(new BufferedInputStream(System.in));
        answers = new DataOutputStream(
            new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)));
        takeOver();
        while (true) {
            String[] words;
            try {
                words = new String[requests.readInt()];
            } catch (EOFException ended) {
                return;
            }
            for (int i = 0; i < words.length; i++) {
                words[i] = new String(bytes(requests), StandardCharsets.UTF_8);
            }
            in = new ByteArrayInputStream(bytes(requests));
            said = new ByteArrayOutputStream();
            complained = new ByteArrayOutputStream();
            out = said;
            err = complained;
            isAsked = true;
            int ended = run(words);
            isAsked = false;
            answer(ended);
        }
    }

    /** What a tool that ends the process by itself has said. */
    private static void answerAtTheEnd() {
        try {
            if (isAsked) {
                answer(PROCESS_ENDS);
            }
        } catch (IOException gone) {
            // Nobody listens any more.
        }
    }

    private static void answer(int ended) throws IOException {
        answers.writeInt(ended);
        for (ByteArrayOutputStream text : new ByteArrayOutputStream[] {said, complained}) {
            answers.writeInt(text.size());
            text.writeTo(answers);
        }
        answers.flush();
    }

    /** Puts the streams of one command line in the place of the process's, and its end, too. */
    private static void takeOver() {
        System.setOut(new PrintStream(new OutputStream() {
            @Override
            public void write(int b) throws IOException {
                out.write(b);
            }
        }, true));
        System.setErr(new PrintStream(new OutputStream() {
            @Override
            public void write(int b) throws IOException {
                err.write(b);
            }
        }, true));
        System.setIn(new InputStream() {
            @Override
            public int read() throws IOException {
                return in.read();
            }
        });
        Exit.Procedure end = (code, message) -> {
            // A tool that catches everything may end a second time, and say so: nobody hears that
            // of a process that has ended.
            if (status == null) {
                status = code;
                System.out.flush();
                System.err.flush();
                out = OutputStream.nullOutputStream();
                err = OutputStream.nullOutputStream();
            }
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        Runtime.getRuntime().addShutdownHook(new Thread(ToolRunner::answerAtTheEnd));
    }

    private static int run(String[] words) throws Exception {
        status = null;
        int unended = 0;
        try {
            Class.forName(words[0]).getMethod("main", String[].class)
                .invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
        } catch (InvocationTargetException failed) {
            failed.getCause().printStackTrace();
            unended = 1;
        }
        for (Runnable hook : hooks) {
            hook.run();
        }
        hooks.clear();
        System.out.flush();
        System.err.flush();
        return status == null ? unended : status;
    }

    private static byte[] bytes(DataInputStream input) throws IOException {
        return input.readNBytes(input.readInt());
    }
}
