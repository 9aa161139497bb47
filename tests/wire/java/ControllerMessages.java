import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.MessageUtil;

/** Reads lines of a message's class, a version and JSON; writes what Kafka makes of it as bytes. */
public class ControllerMessages {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] parts = lines.nextLine().split(" ", 3);
            String name = "org.apache.kafka.common.message." + parts[0] + "DataJsonConverter";
            short version = Short.parseShort(parts[1]);
            ApiMessage message = (ApiMessage) Class.forName(name)
                .getMethod("read", JsonNode.class, short.class)
                .invoke(null, mapper.readTree(parts[2]), version);
            ByteBuffer bytes = MessageUtil.toByteBuffer(message, version);
            System.out.println(HexFormat.of().formatHex(bytes.array(), 0, bytes.limit()));
        }
    }
}
